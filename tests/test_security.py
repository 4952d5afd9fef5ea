"""The statements of SECURITY.md, checked on the sources and on the workflow's own commands."""

import ast
import json
import re
import shutil
from pathlib import Path

import pytest
import yaml

from refblend.config import RefblendConfig
from refblend.errors import RefblendError
from refblend.study.design.grid import build_grid

ROOT = Path(__file__).parents[1]
SOURCES = sorted((ROOT / "src" / "refblend").rglob("*.py"))
RULES = sorted((ROOT / "workflow" / "rules").glob("*.smk"))


def dotted(node: ast.expr) -> str:
    """``a.b.c`` of a call's function, as far as it is written with names."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    parts.append(node.id if isinstance(node, ast.Name) else "")
    return ".".join(reversed(parts))


def is_constant(node: ast.expr | None, value: object) -> bool:
    return isinstance(node, ast.Constant) and node.value is value


def problems(text: str) -> list[str]:
    """Calls in a source that SECURITY.md rules out and ruff does not (`S` in pyproject.toml)."""
    found = []
    for node in ast.walk(ast.parse(text)):
        if not isinstance(node, ast.Call):
            continue
        name, keywords = dotted(node.func), {word.arg: word.value for word in node.keywords}
        if name.endswith("torch.load") and not is_constant(keywords.get("weights_only"), True):
            found.append(f"line {node.lineno}: torch.load without weights_only=True")
        if name.endswith(".read_pickle") or "allow_pickle" in keywords:
            found.append(f"line {node.lineno}: {name} reads pickles")
        model = name.startswith("AutoModel") and name.endswith(".from_pretrained")
        if model and not is_constant(keywords.get("use_safetensors"), True):
            found.append(f"line {node.lineno}: {name} without use_safetensors=True")
        if is_constant(keywords.get("trust_remote_code"), True):
            found.append(f"line {node.lineno}: {name} with trust_remote_code=True")
    return found


def test_no_source_runs_code_from_data() -> None:
    assert len(SOURCES) > 100
    found = {path: problems(path.read_text()) for path in SOURCES}
    assert {path: lines for path, lines in found.items() if lines} == {}


@pytest.mark.parametrize(
    "line",
    [
        "torch.load(path)",
        "torch.load(path, weights_only=flag)",
        "np.load(path, allow_pickle=True)",
        "AutoModel.from_pretrained(path, use_safetensors=True, trust_remote_code=True)",
        "AutoModelForCausalLM.from_pretrained(path)",
    ],
)
def test_the_check_sees_what_it_looks_for(line: str) -> None:
    assert len(problems(line)) == 1


def test_code_of_a_model_is_run_only_when_asked_for() -> None:
    default = yaml.safe_load((ROOT / "params" / "ppo.yaml").read_text())
    assert default["actor_rollout_ref"]["model"]["trust_remote_code"] is False
    schema = json.dumps(RefblendConfig.model_json_schema())
    assert schema.count('"trust_remote_code": {"default": false') == schema.count(
        '"trust_remote_code": {'
    )
    for path in (ROOT / "params").rglob("*.yaml"):
        assert "trust_remote_code: true" not in path.read_text(), path


def secrets_in(tree: object) -> list[str]:
    """Keys of a configuration that would hold a secret."""
    text = json.dumps(tree).lower()
    words = re.findall(r'"([a-z0-9_]*)": \{', text)
    suspicious = r"(api|access|auth|secret|private)_?(key|token)|password|passwd|secret|credential"
    return [word for word in words if re.search(suspicious, word)]


def test_no_key_of_the_configuration_asks_for_a_secret() -> None:
    assert secrets_in(RefblendConfig.model_json_schema()) == []
    assert secrets_in({"wandb_api_key": {"type": "string"}}) == ["wandb_api_key"]


NUMBERS = {
    "threads",  # Snakemake's own
    "params.seeds",  # the wildcard's pattern allows digits only
    "params.rows",  # scoring.sizes: positive integers
    "params.engine",  # scoring.sizes: vllm or hf
    "params.leased",  # ours: nothing, or the command that leases a number of GPUs
}
"""What a shell command may hold unquoted, because it cannot be anything but a number or a word."""


def placeholders(command: str) -> list[str]:
    return re.findall(r"\{([^{}]+)\}", command.replace("{{", "").replace("}}", ""))


@pytest.mark.parametrize("path", RULES, ids=lambda path: path.stem)
def test_shell_rules_quote_every_parameter(path: Path) -> None:
    commands = re.findall(r"    shell:\n((?: +[\"'].*[\"']\n)+)", path.read_text())
    assert len(commands) == path.read_text().count("    shell:")
    for command in commands:
        for name in placeholders(command):
            assert name.endswith(":q") or name in NUMBERS, f"{name} in {command}"


def test_the_numbers_are_numbers() -> None:
    common = (ROOT / "workflow" / "rules" / "common.smk").read_text()
    assert r'seeds=r"[0-9]+(-[0-9]+)*"' in common
    schema = json.loads((ROOT / "workflow" / "schemas" / "config.schema.json").read_text())
    sizes = schema["$defs"]["ScoringSizes"]["properties"]
    assert sizes["engine"]["enum"] == ["vllm", "hf"]
    for name in ("pairs", "robustness_problems", "attacked_answers"):
        assert sizes[name]["type"] == "integer"


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("linear:", '"x; touch pwned":'),
        ("linear:", '"../../escaped":'),
        ("linear:", '"$(touch pwned)":'),
        ("algorithm.ref_quality_score.strategy:", '"a; touch pwned":'),
    ],
)
def test_hostile_names_are_refused_before_any_work(tmp_path: Path, old: str, new: str) -> None:
    shutil.copytree(ROOT / "params", tmp_path / "params")
    path = tmp_path / "params" / "study" / "M1.yaml"
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))
    with pytest.raises(RefblendError, match=re.escape(str(path))):
        build_grid(["M1"], "smoke", tmp_path / "params")
