"""``--help``: panels of commands, and an example for each command.

Plain text, so that ``refblend --help`` loads no library for drawing boxes.
"""

from typing import Any

import typer
from typer.core import TyperGroup

USE, STUDY, INTERNAL = "Use", "Study", "Internal (called by the workflow)"

PANELS = {
    "": {
        USE: "check train show score advise evaluate runs data judge config",
        STUDY: "plan plan-step study",
        INTERNAL: "models",
    },
    "study": {
        STUDY: "power recommend guard verdicts redraw archive",
        INTERNAL: "grid collect report check mark fail schemas",
    },
}
"""Commands of a group by panel; those of a group that is not named here stand in one panel."""

_RUN = "--config params/ppo.yaml --config params/scale/smoke.yaml"
_RECIPE = "--recipe params/embedded/smoke.yaml"
_JUDGE = "--judge models/smoke/judge_medium"
_FRAMES = "runs/smoke/_collected/m2"

EXAMPLES = {
    "train": f"refblend train {_RUN} trainer.seed=2 trainer.default_local_dir=runs/mine",
    "check": f"refblend check {_RUN} trainer.default_local_dir=runs/mine",
    "config": f"refblend config {_RUN} algorithm.adv_estimator=gae",
    "score": f"refblend score {_JUDGE} --input answers.jsonl --output scores.csv",
    "advise": "refblend advise runs/smoke/linear/seed_1 --figure advice.svg",
    "evaluate": "refblend evaluate runs/mine --data data/smoke/test.parquet",
    "plan": "refblend plan M1 --scale cpu --slots 2",
    "plan-step": "refblend plan-step --nodes 8 --gpus-per-node 8 --from runs/mine",
    "show": "refblend show runs/mine --compare runs/other",
    "data prepare": f"refblend data prepare {_RECIPE} --out data/smoke",
    "data gsm8k": "refblend data gsm8k --source downloads/gsm8k --out data/gpu",
    "data convert": "refblend data convert questions.jsonl --out data/mine/train.parquet",
    "data math": "refblend data math --source downloads/MATH --out data/math",
    "data reasoning-gym": "refblend data reasoning-gym --task chain_sum --out data/sums",
    "models tokenizer": f"refblend models tokenizer {_RECIPE} --out models/smoke/tokenizer",
    "models actor": f"refblend models actor {_RECIPE} --tokenizer models/smoke/tokenizer "
    "--out models/smoke/actor --clean-out models/smoke/actor_clean",
    "models judge-data": f"refblend models judge-data {_RECIPE} --tokenizer models/smoke/tokenizer "
    "--actor models/smoke/actor --clean models/smoke/actor_clean --out train.parquet "
    "--test-out test.parquet",
    "models judge": f"refblend models judge {_RECIPE} --tokenizer models/smoke/tokenizer "
    "--strength weak --start models/smoke/actor_clean --pairs train.parquet "
    "--out models/smoke/judge_weak",
    "models evaluate-actor": f"refblend models evaluate-actor {_RECIPE} --model models/smoke/actor "
    "--data data/smoke/test.parquet --report actor.json",
    "models pack": f"refblend models pack models.tar.xz models/smoke {_RECIPE}",
    "models unpack": f"refblend models unpack models.tar.xz models/smoke {_RECIPE}",
    "models pretrained": "refblend models pretrained --gguf model.gguf --out models/mine",
    "judge quality": f"refblend judge quality {_JUDGE} --corpus labelled.jsonl --report q.json",
    "judge robustness": f"refblend judge robustness {_JUDGE} --data data/smoke/test.parquet "
    "--report r.json",
    "judge attacks": f"refblend judge attacks {_JUDGE} --data data/smoke/test.parquet "
    "--report a.json",
    "runs list": "refblend runs list runs",
    "runs prune": "refblend runs prune runs --yes",
    "runs pack": "refblend runs pack done.tar.xz runs/smoke",
    "runs unpack": "refblend runs unpack done.tar.xz runs/smoke",
    "study grid": "refblend study grid M1 --scale smoke --out grid.tsv",
    "study collect": "refblend study collect --grid grid.tsv --scale smoke --out frames M1",
    "study report": "refblend study report m1 --scale smoke",
    "study check": f"refblend study check --collected {_FRAMES} --out checks.json "
    "--tolerated oom=0",
    "study power": "refblend study power results/cpu/m2/tables/per_seed.csv --effect 0.02",
    "study recommend": f"refblend study recommend --collected {_FRAMES} --scale smoke "
    "--out recommended.yaml",
    "study guard": f"refblend study guard --collected {_FRAMES} --scale smoke "
    "--recommended recommended.yaml --out guards.json",
    "study archive": "refblend study archive --scale cpu",
    "study verdicts": "refblend study verdicts --scale cpu",
    "study redraw": "refblend study redraw --scale cpu --out redrawn",
    "study mark": "refblend study mark runs/smoke/off/seed_1 --out 1.trained.json",
    "study fail": "refblend study fail runs/smoke/off/seed_1 --status 1 --log train.log",
    "study schemas": "refblend study schemas --out workflow/schemas",
}
"""By command; a test calls each with ``--help`` added, which checks names and options."""


class Panels(TyperGroup):
    """A group whose help lists its commands by panel."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write one section per panel; commands of no panel come first."""
        panels = PANELS.get("" if ctx.parent is None else (ctx.info_name or ""), {})
        known = " ".join(panels.values()).split()
        commands = self.list_commands(ctx)
        rest = " ".join(name for name in commands if name not in known)
        width = formatter.width - 6 - max(map(len, commands))
        for panel, names in {"Commands": rest, **panels}.items():
            rows = [
                (name, self.commands[name].get_short_help_str(width))
                for name in names.split()
                if name in self.commands
            ]
            if rows:
                with formatter.section(panel):
                    formatter.write_dl(rows)


def add_examples(app: typer.Typer, group: str = "") -> None:
    """Give every command of an application, and of the groups below it, its example."""
    for info in app.registered_commands:
        callback = info.callback
        assert callback is not None, "registered by a decorator"
        name = info.name or callback.__name__.replace("_", "-")
        example = EXAMPLES.get(f"{group} {name}".strip())
        if example:
            info.epilog = f"Example:\n\n\b\n{_folded(example)}"
    for below in app.registered_groups:
        assert below.typer_instance is not None
        add_examples(below.typer_instance, below.name or "")


def _folded(command: str, width: int = 74) -> str:
    """A command on several lines, as a shell takes it."""
    lines = [""]
    for word in command.split(" "):
        if lines[-1] and len(lines[-1]) + len(word) > width:
            lines[-1] += " \\"
            lines.append(f"  {word}")
        else:
            lines[-1] = f"{lines[-1]} {word}".lstrip() if lines[-1].strip() else word
    return "\n".join(lines)
