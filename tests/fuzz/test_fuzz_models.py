"""Model directories: config.json, generation_config.json and the tokenizer's files."""

import json
import shutil
from pathlib import Path
from typing import Any

from fuzz_support import attempt, folder
from fuzz_trees import HOSTILE, mutated, mutated_bytes
from hypothesis import given
from hypothesis import strategies as st

from refblend.data.tokenizer import encode_chat, load_tokenizer
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
TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json")


def dumped(tree: Any) -> bytes:
    return json.dumps(tree).encode()


@given(
    (mutated(CONFIG) | st.sampled_from(HOSTILE)).map(dumped)
    | mutated_bytes(dumped(CONFIG))
    | st.sampled_from(GARBAGE),
    mutated(GENERATION),
    st.sampled_from((None, 1, 512, 4096)),
)
def test_configuration(config: bytes, generation: Any, wanted: int | None) -> None:
    with folder() as path:
        (path / "config.json").write_bytes(config)
        (path / "generation_config.json").write_bytes(dumped(generation))
        (path / "model.safetensors").write_bytes(b"")
        assert check_model_dir(str(path), "model.path") == path
        accepted, length = attempt(lambda: resolve_max_model_len(path, wanted), str(path))
        if accepted:
            positions = json.loads(config).get("max_position_embeddings")
            assert length == (positions if wanted is None else wanted)
            assert type(length) is int
            assert length > 0
        accepted, ids = attempt(lambda: stop_token_ids(path), str(path))
        if accepted:
            named: set[Any] = set()
            for source in (json.loads(config), generation):
                value = source.get("eos_token_id")
                named |= set(value if isinstance(value, list) else [] if value is None else [value])
            assert ids == named
            assert all(type(token) is int for token in named)


@given(st.data())
def test_tokenizer(tiny_tokenizer_dir: Path, data: st.DataObject) -> None:
    """A damaged tokenizer is refused, or it is one that encodes and decodes."""
    name = data.draw(st.sampled_from(TOKENIZER_FILES))
    with folder() as root:
        path = shutil.copytree(tiny_tokenizer_dir, root / "tokenizer")
        content = (path / name).read_bytes()
        hostile = mutated_bytes(content)
        if name == "tokenizer_config.json":
            hostile |= mutated(json.loads(content)).map(dumped)
        (path / name).write_bytes(data.draw(hostile))
        chat = [{"role": "user", "content": "What is 1+1?"}]
        accepted, ids = attempt(lambda: encode_chat(load_tokenizer(path), chat))
        if accepted:
            assert all(type(token) is int for token in ids or [])
