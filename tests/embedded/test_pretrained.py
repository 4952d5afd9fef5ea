"""A pretrained model from a GGUF file: refusals, and the real one that `make pretrained` makes."""

from pathlib import Path

import pytest

from refblend.embedded import pretrained
from refblend.errors import ModelError
from refblend.files import sha256_file

MODEL = Path(__file__).resolve().parents[2] / "models" / "smollm" / "base"


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="make pretrained"):
        pretrained.convert_gguf(tmp_path / "no.gguf", tmp_path / "out")


def test_another_file_is_refused_before_it_is_read(tmp_path: Path) -> None:
    path = tmp_path / "other.gguf"
    path.write_bytes(b"GGUF or not")
    with pytest.raises(ModelError, match=f"has the SHA-256 {sha256_file(path)}"):
        pretrained.convert_gguf(path, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_packages_that_read_it_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "mine.gguf"
    path.write_bytes(b"GGUF")
    monkeypatch.setattr(pretrained, "NEEDED", ("no-such-package-here",))
    with pytest.raises(ModelError, match="needs the package no-such-package-here"):
        pretrained.convert_gguf(path, tmp_path / "out", sha256_file(path))


@pytest.mark.skipif(not MODEL.is_dir(), reason="needs `make pretrained`")
def test_the_real_model_answers_in_its_own_format() -> None:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(MODEL)
    model = AutoModelForCausalLM.from_pretrained(MODEL)
    assert model.num_parameters() == 134_515_008
    assert model.generation_config.eos_token_id == tokenizer.convert_tokens_to_ids("<|im_end|>")
    chat = [{"role": "user", "content": "What is the capital of France?"}]
    tokens = tokenizer.apply_chat_template(
        chat, add_generation_prompt=True, return_tensors="pt", return_dict=True
    )
    written = model.generate(**tokens, do_sample=False, max_new_tokens=24)
    text = tokenizer.decode(written[0, tokens["input_ids"].shape[1] :])
    assert "Paris" in text
