"""How many lines of ``src/`` are abilities that the package did not have at an earlier commit?

    python scripts/lines_by_ability.py

An ability is the modules of today that serve it (``package.module``, a whole package, or
``package.module:function`` for a part of one), less the modules of the earlier commit that they
replace: what is left is new. All lines count, blank ones, comments and docstrings included.
"""

import ast
import subprocess
from pathlib import Path

import pandas as pd

BEFORE = "f5172a4"
SOURCE = Path("src/refblend")

ABILITIES = {
    "public interface": ("__init__ interface", "__init__"),
    "the blend in TRL and verl": ("integrations", ""),
    "`refblend show`": ("viewer cli.runs:show", ""),
    "check of a GPU, rehearsal of scale gpu, stand-in models": (
        "gpu_check study.rehearsal embedded.stand_in study.design.grid:check_endpoint "
        "study.design.grid:_lacking",
        "",
    ),
    "trackers of services, rollouts and a figure in all": (
        "trainer.trackers trainer.tracking",
        "trainer.tracking",
    ),
    "judges behind HTTP, reward models, judges of one's own, guided decoding": (
        "scoring rollout.hf_engine:GuideFactory rollout.hf_engine:Guide cli.scoring "
        "cli.judge_options tables",
        "scoring",
    ),
    "pretrained start (scale smollm)": (
        "embedded.pretrained embedded.sums cli.models:pretrained embedded.recipe:PretrainedRecipe "
        "study.report.r",
        "",
    ),
    "GSM8K and MATH as four disjoint files, reasoning-gym": (
        "data.gsm8k data.math data.reasoning_gym data.reasoning_gym_server data.splits "
        "data.equations cli.data",
        "data.gsm8k data.cli",
    ),
    "rewards: math-verify, reasoning-gym, sparse and noisy, partial credit": ("rewards", "rewards"),
    "strategies as records; decay, replay, automatic threshold, mixed groups": (
        "ppo.weights ppo.entropy_maps ppo.blending:mixed_groups trainer.replay",
        "ppo.weights",
    ),
    "archive of runs, reports redrawn from it, publishing without noise": (
        "study.runs.archive study.report.publish cli.study_report:archive "
        "cli.study_report:redraw cli.study_report:publish",
        "",
    ),
    "seeds for a difference and for equivalence": (
        "study.planning.power study.stats.power cli.study:power cli.study:Question",
        "",
    ),
    "run directories compared key by key, moved aside, listed; all problems before a start": (
        "identity provenance:InputHashes provenance:hash_inputs trainer.run_directory "
        "trainer.preflight "
        "trainer.launch trainer.summary cli.runs errors lookup",
        "identity trainer.launch errors ppo.lookup",
    ),
    "which code a number, and a figure, depends on": ("numeric_code function_code", ""),
    "a description of every key, new keys, all errors of a file at once": ("config", "config"),
    "finished actors tested by the engine of training": (
        "study.runs.evaluate cli.runs:evaluate study.runs.run_files:read_test",
        "study.evaluate",
    ),
    "help in panels with examples": ("cli.help cli.main cli.options", "cli"),
    "experiments of one's own by one file; the answer of each on the first page": (
        "study.design.arms study.report.m2.answers",
        "",
    ),
    "several nodes: placement, files, memory": (
        "workers.placement workers.nodes workers.pools workers.run_files workers.node_files",
        "workers.resource_pools",
    ),
    "several engines, meeting points, access to a cluster": (
        "rollout.base:Work rollout.base:split_rows rollout.base:work_of workers.engines "
        "study.runs.engines workers.rendezvous workers.cluster:require_token "
        "workers.cluster:check_nodes",
        "",
    ),
    "prediction of a step on a cluster": (
        "study.planning.step_costs study.planning.step_model study.planning.step_plan "
        "cli.plan:Cluster cli.plan:show_step_plan cli.plan:_told",
        "",
    ),
    "weights in memory that processes share, put in place": (
        "rollout.in_place workers.weight_buffer",
        "",
    ),
    "verdicts, regimes, difficulty, profiles": (
        "study.stats.verdicts study.stats.exact study.report.m2.responses:breakdown "
        "study.report.m2.responses:pass_at_n study.report.m2.responses:length_controlled "
        "study.report.m2.figures_arms cli.study_report:verdicts",
        "",
    ),
    "GPU memory, private folders": (
        "trainer.step_metrics:gpu_memory trainer.step_metrics:_add_memory "
        "workers.cluster:_private_environment",
        "",
    ),
}
"""Ability → what serves it today, and what of it was there before."""


def before() -> dict[str, str]:
    """Module → source at the earlier commit."""
    listed = _git("ls-tree", "-r", "--name-only", BEFORE, str(SOURCE)).splitlines()
    return {_module(Path(name)): _git("show", f"{BEFORE}:{name}") for name in _python(listed)}


def today() -> dict[str, str]:
    """Module → source as it is."""
    return {_module(path): path.read_text(encoding="utf-8") for path in SOURCE.rglob("*.py")}


def lines(sources: dict[str, str], wanted: str) -> int:
    """Lines of all modules, packages and functions that ``wanted`` names, separated by blanks."""
    total = 0
    for name in wanted.split():
        module, _, part = name.partition(":")
        found = {m: t for m, t in sources.items() if m == module or m.startswith(f"{module}.")}
        if not found:
            raise SystemExit(f"{name} is no module: correct ABILITIES")
        total += _part(sources[module], name, part) if part else sum(map(_count, found.values()))
    return total


def _part(text: str, name: str, part: str) -> int:
    for node in ast.parse(text).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and node.name == part:
            first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
            return (node.end_lineno or first) - first + 1
    raise SystemExit(f"{name} is not defined: correct ABILITIES")


def _count(text: str) -> int:
    return len(text.splitlines())


def _module(path: Path) -> str:
    parts = path.relative_to(SOURCE).with_suffix("").parts
    return ".".join(parts).removesuffix(".__init__")


def _python(names: list[str]) -> list[str]:
    return [name for name in names if name.endswith(".py")]


def _git(*arguments: str) -> str:
    return subprocess.run(["git", *arguments], check=True, capture_output=True, text=True).stdout


def main() -> None:
    """Print the table."""
    old, new = before(), today()
    rows = [
        {"ability": ability, "today": lines(new, serves), "before": lines(old, replaced)}
        for ability, (serves, replaced) in ABILITIES.items()
    ]
    table = pd.DataFrame(rows)
    table["new lines"] = table["today"] - table["before"]
    table = table.sort_values("new lines", ascending=False)
    all_old, all_new = (sum(map(_count, sources.values())) for sources in (old, new))
    added = int(table["new lines"].sum())
    print(table.to_markdown(index=False))
    print(f"\nsrc/ at {BEFORE}: {all_old}; today: {all_new}; of these new abilities: {added}.")
    print(f"The same abilities: {all_new - added}, {all_new - added - all_old:+d}.")


if __name__ == "__main__":
    main()
