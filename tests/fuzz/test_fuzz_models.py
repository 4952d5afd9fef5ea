"""Model directories: config.json, generation_config.json and the tokenizer's files."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from fuzz_support import attempt, cases, check_cli, folder
from fuzz_trees import HOSTILE, mutated, mutated_bytes
from hypothesis import given
from hypothesis import strategies as st

from refblend.data.tokenizer import encode_chat, load_tokenizer
from refblend.errors import ModelError
from refblend.rollout.model_dir import check_model_dir, resolve_max_model_len, stop_token_ids

CONFIG = {
    "architectures": ["Qwen2ForCausalLM"],
    "model_type": "qwen2",
    "max_position_embeddings": 1024,
    "eos_token_id": 2,
    "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0},
}
GENERATION = {"eos_token_id": [2, 5], "do_sample": True}
GARBAGE = (b"", b"{torn", b"[]", b"null", b"5", b"\xff", b'"x"', b"[" * 3000, b"{}", b"9" * 5000)


def place(path: Path, config: bytes, generation: bytes | None = None) -> Path:
    (path / "config.json").write_bytes(config)
    (path / "model.safetensors").write_bytes(b"")
    if generation is not None:
        (path / "generation_config.json").write_bytes(generation)
    return path


@cases("models", 0.04)
@given(
    mutated(CONFIG) | mutated({"max_position_embeddings": 1024}) | st.sampled_from(HOSTILE),
    mutated(GENERATION),
    st.sampled_from((None, 1, 512, 4096)),
)
def test_configuration(config: Any, generation: Any, wanted: int | None) -> None:
    with folder() as path:
        place(path, json.dumps(config).encode(), json.dumps(generation).encode())
        assert check_model_dir(str(path), "model.path") == path
        accepted, length = attempt(lambda: resolve_max_model_len(path, wanted), str(path))
        if accepted:
            positions = config.get("max_position_embeddings")
            assert length == (positions if wanted is None else wanted)
            assert type(length) is int
            assert length > 0
        accepted, ids = attempt(lambda: stop_token_ids(path), str(path))
        if accepted:
            named: set[Any] = set()
            for source in (config, generation):
                value = source.get("eos_token_id")
                named |= set(value if isinstance(value, list) else [] if value is None else [value])
            assert ids == named
            assert all(type(token) is int for token in named)


@cases("models", 0.03)
@given(mutated_bytes(json.dumps(CONFIG).encode()) | st.sampled_from(GARBAGE))
def test_configuration_bytes(content: bytes) -> None:
    with folder() as path:
        place(path, content)
        accepted, length = attempt(lambda: resolve_max_model_len(path, None), str(path))
        if accepted:
            assert length == json.loads(content)["max_position_embeddings"]
        attempt(lambda: stop_token_ids(path), str(path))


TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json")


@cases("models", 0.01)
@given(st.data())
def test_tokenizer(tiny_tokenizer_dir: Path, data: st.DataObject) -> None:
    """A damaged tokenizer is refused, or it is one that encodes and decodes."""
    name = data.draw(st.sampled_from(TOKENIZER_FILES))
    with folder() as root:
        path = root / "tokenizer"
        shutil.copytree(tiny_tokenizer_dir, path)
        content = (path / name).read_bytes()
        if data.draw(st.booleans()) and name == "tokenizer_config.json":
            hostile = json.dumps(data.draw(mutated(json.loads(content)))).encode()
        else:
            hostile = data.draw(mutated_bytes(content) | st.sampled_from(GARBAGE))
        (path / name).write_bytes(hostile)

        def use() -> list[int]:
            tokenizer = load_tokenizer(path)
            return encode_chat(tokenizer, [{"role": "user", "content": "What is 1+1?"}])

        accepted, ids = attempt(use)
        if accepted:
            assert all(type(token) is int for token in ids or [])


@cases("models", 0.002)
@given(st.sampled_from(GARBAGE), st.sampled_from(("config.json", *TOKENIZER_FILES)))
def test_command_line(tiny_model_dir: Path, tiny_data_dir: Path, content: bytes, name: str) -> None:
    """The preflight of ``refblend check`` on a model with a damaged file."""
    with folder() as root:
        model = root / "model"
        shutil.copytree(tiny_model_dir, model)
        (model / name).write_bytes(content)
        config = root / "config.yaml"
        config.write_text(
            json.dumps(
                {
                    "data": {
                        "train_files": [str(tiny_data_dir / "train.parquet")],
                        "val_files": [str(tiny_data_dir / "validation.parquet")],
                        "train_batch_size": 4,
                    },
                    "actor_rollout_ref": {
                        "model": {"path": str(model)},
                        "rollout": {"max_model_len": 1024},
                    },
                }
            )
        )
        status, _ = check_cli("check", "--config", str(config), where=root)
        assert status == 2 or name == "tokenizer_config.json" or content == b"{}"


@pytest.mark.parametrize("content", GARBAGE)
@pytest.mark.parametrize("name", TOKENIZER_FILES)
def test_garbage_for_a_tokenizer(
    tiny_tokenizer_dir: Path, tmp_path: Path, name: str, content: bytes
) -> None:
    path = tmp_path / "tokenizer"
    shutil.copytree(tiny_tokenizer_dir, path)
    (path / name).write_bytes(content)
    if (name, content) != ("tokenizer_config.json", b"{}"):  # says nothing wrong
        with pytest.raises(ModelError, match="has no usable tokenizer"):
            load_tokenizer(path)
