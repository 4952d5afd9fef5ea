"""The public interface: exactly these names and signatures, cheap to import, and they work."""

import inspect
import json
import subprocess
import sys
from pathlib import Path

import pytest

import refblend
from refblend.errors import ConfigError

SIGNATURES = json.loads(Path(__file__).with_name("interface.json").read_text(encoding="utf-8"))
"""A change there is a change for users: see CONTRIBUTING.md, "The public interface"."""


def signature(name: str) -> str:
    found = refblend
    for part in name.split("."):
        found = getattr(found, part)
    text = str(inspect.signature(found))
    for module in ("typing.", "collections.abc.", "torch.", "refblend.scoring.result."):
        text = text.replace(module, "")
    return text.replace("refblend.config.root.", "").replace("refblend.ppo.weights.", "")


def test_the_names() -> None:
    assert sorted({name.partition(".")[0] for name in SIGNATURES}) == sorted(refblend.__all__)
    assert set(refblend.__all__) < set(dir(refblend))
    with pytest.raises(AttributeError, match="no attribute 'Judges'"):
        refblend.Judges  # noqa: B018


@pytest.mark.parametrize("name", SIGNATURES)
def test_the_signatures(name: str) -> None:
    assert signature(name) == SIGNATURES[name]


def loaded(code: str) -> set[str]:
    """Top-level modules in a fresh Python after ``code``."""
    code += "; import sys; print(*{name.partition('.')[0] for name in sys.modules})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def test_a_public_name_loads_no_engine_and_the_package_nothing() -> None:
    names = "import refblend; [getattr(refblend, name) for name in refblend.__all__]"
    assert not loaded("import refblend") & {"torch", "pandas", "pydantic"}
    heavy = {"vllm", "ray", "seaborn", "matplotlib", "transformers", "pandas", "snakemake", "dvc"}
    assert not loaded(names) & heavy


def test_a_judge_scores_and_is_shut_down(tiny_model_dir: Path) -> None:
    judge = refblend.Judge.open(
        tiny_model_dir, engine="hf", templates="embedded", invalid_score=0.25, max_new_tokens=4
    )
    ended = []
    judge.shutdown = lambda: ended.append(True)  # type: ignore[method-assign]
    with judge:
        results = judge.score(["3+4?", "3+4?"], ["3+4=7.\n#### 7", "#### 8"])
        assert not ended
    assert ended
    assert len(results) == 2
    for result in results:
        assert isinstance(result, refblend.JudgeResult)
        assert 0 <= result.score <= 1
        assert result.valid or result.score == 0.25


def test_score_file(tiny_model_dir: Path, tmp_path: Path) -> None:
    rows = tmp_path / "rows.jsonl"
    rows.write_text("\n".join(json.dumps({"question": "3+4?", "response": r}) for r in "78"))
    options = {"engine": "hf", "templates": "embedded", "max_new_tokens": 4}
    frame = refblend.score_file(rows, tmp_path / "out.jsonl", tiny_model_dir, **options)
    written = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert [row["score"] for row in written] == frame["score"].tolist()
    assert [row["response"] for row in written] == ["7", "8"]


def test_train_takes_files_a_tree_or_a_configuration(monkeypatch, tiny_config, tmp_path) -> None:
    import yaml

    from refblend.trainer import launch

    monkeypatch.setattr(launch, "train", lambda config, overwrite: (config, overwrite))
    config = tiny_config()
    file = tmp_path / "run.yaml"
    file.write_text(yaml.safe_dump(config.resolved()))
    for given in (config, config.resolved(), file, str(file), [file, file]):
        assert refblend.train(given) == (config, False)
        changed, overwrite = refblend.train(given, ["trainer.seed=7"], overwrite=True)
        assert (changed.trainer.seed, overwrite) == (7, True)
    with pytest.raises(ConfigError, match=r"trainer\.sed"):
        refblend.train(config, ["trainer.sed=7"])
