"""What the viewer shows of a run, read from its directory.

Everything but the metrics may be missing: a run may have been killed, may still be going on, or may
have been recorded by an earlier version.
"""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import pandas as pd

from refblend.documents import MalformedError, flatten, parse_json
from refblend.errors import DataError
from refblend.files import read_record
from refblend.trainer.console import accuracies
from refblend.trainer.tracking import read_metrics

MAIN = {
    "critic/score/mean": "training reward",
    "critic/acc/mean": "training accuracy",
    "critic/rewards/mean": "blended reward",
    "actor/ref_quality/score_mean": "judge's score",
    "actor/ref_quality/auc": "judge's AUC",
    "actor/ref_quality/weight": "weight w",
    "actor/ref_quality/avg_entropy": "entropy",
    "response_length/mean": "response tokens",
    "actor/ppo_kl": "PPO's KL",
    "actor/grad_norm": "gradient norm",
    "timing_s/step": "seconds per step",
}
"""The main metrics after the validation accuracies, each with its display name."""
Response = dict[str, Any]
"""A line of ``rollouts/<step>.jsonl``."""


@dataclass(frozen=True)
class Run:
    """A run's directory, read where needed."""

    path: Path

    @classmethod
    def open(cls, path: Path) -> "Run":
        """The run in a directory; DataError if it holds none, or its metrics cannot be read."""
        run = cls(path)
        if not (path / "metrics.jsonl").is_file():
            raise DataError(
                f"{path} has no metrics.jsonl: {run.summary.get('reason') or 'it holds no run'}",
                "Name the directory of one run; `refblend runs list` shows all.",
            )
        _ = run.metrics
        return run

    @cached_property
    def metrics(self) -> pd.DataFrame:
        """One row per step."""
        return read_metrics(self.path / "metrics.jsonl")

    @cached_property
    def settings(self) -> dict[str, Any]:
        """The resolved configuration by dotted names, empty if there is none."""
        return flatten(self._object("config.json"))

    @cached_property
    def summary(self) -> dict[str, Any]:
        """How the run ended, empty while it goes on or after it was killed."""
        return self._object("summary.json")

    @cached_property
    def provenance(self) -> dict[str, Any]:
        """Where the run comes from, empty if unknown."""
        return self._object("provenance.json")

    def _object(self, name: str) -> dict[str, Any]:
        path, remedy = self.path / name, "Restore it, or remove it to leave it out."
        return read_record(path, DataError, remedy) if path.is_file() else {}

    @property
    def labels(self) -> dict[str, str]:
        """Shown names of the main metrics that the run has, by metric."""
        of_validation = {n: f"val {source}" for n, source in accuracies(self.metrics).items()}
        return {n: label for n, label in (of_validation | MAIN).items() if n in self.metrics}

    def main_metrics(self) -> list[tuple[str, pd.Series]]:
        """Shown name and finite values by step, of the main metrics that the run has."""
        by_step = self.metrics.set_index("step")
        found = [(label, by_step[name].dropna()) for name, label in self.labels.items()]
        return [(label, values) for label, values in found if len(values)]

    @cached_property
    def recorded_steps(self) -> list[int]:
        """Steps whose responses were recorded, ascending."""
        names = [path.stem for path in self.path.glob("rollouts/*.jsonl")]
        return sorted(int(name) for name in names if name.isdecimal() and name == str(int(name)))

    def responses(self, step: int) -> list[Response]:
        """The recorded responses of a step; an incomplete last line is left out.

        DataError if none were recorded at this step, or a line is not a record.
        """
        if step not in self.recorded_steps:
            steps = ", ".join(map(str, self.recorded_steps)) or "none"
            raise DataError(
                f"{self.path} has no responses of step {step}; recorded steps: {steps}",
                "Choose one of them; trainer.rollout_dump_freq says how often they are recorded.",
            )
        path = self.path / "rollouts" / f"{step}.jsonl"
        # Not splitlines(): a response may hold other line separators, such as U+2028.
        *lines, _torn = path.read_bytes().split(b"\n")
        read = []
        for number, line in enumerate(lines, start=1):
            try:
                record = parse_json(line)
                reward = record.get("reward") if isinstance(record, dict) else None
                if not isinstance(reward, int | float):
                    raise MalformedError("not the record of a response")
            except MalformedError as error:
                remedy = "Restore the file, or delete it."
                raise DataError(f"{path}, line {number}: {error}", remedy) from None
            read.append(record)
        return read


BLEND = "algorithm.ref_quality_score"
_Q_ORIGINS = {
    "text": "as written",
    "logit": "reward model",
    "default": "unreadable: default",
    "overlength": "too long: default",
    "error": "judge failed: default",
}


def q_origin(run: Run, response: Response) -> str:
    """How a response's q came about, in a few words."""
    path = str(response.get("judge_path"))
    if path == "token" or (path == "text" and _expected(run)):
        return "expected score"
    if path == "text" and ":" in _kind(run):
        return "as your judge gave it"
    return _Q_ORIGINS.get(path, path)


def legend(run: Run) -> str:
    """What the numbers of a response mean."""
    if not run.settings.get(f"{BLEND}.enable"):
        return "R: the rule's reward."
    q = "the judge's score"
    if _expected(run):
        q += ", the mean of what it could have written, by probability"
    blended = "the blended reward, summed over the tokens"
    return f"R: the rule's reward. q: {q}. w: the weight of q. ΣR′: {blended}."


def judge_of(run: Run) -> str:
    """What scored the responses: a model, or a class of the user's."""
    model = "http.model" if _kind(run) == "http" else "model_path"
    return _kind(run) if ":" in _kind(run) else str(run.settings.get(f"{BLEND}.scoring.{model}"))


def _kind(run: Run) -> str:
    return str(run.settings.get(f"{BLEND}.scoring.kind"))


def _expected(run: Run) -> bool:
    asked = run.settings.get(f"{BLEND}.scoring.score_mode") == "expected"
    return asked and ":" not in _kind(run) and _kind(run) != "reward_model"


def outcome(response: Response) -> float:
    """What ranks a response: its blended reward, or the rule reward of an older record."""
    value = response.get("blended")
    return float(response["reward"] if value is None else value)


def best_and_worst(responses: list[Response], count: int) -> tuple[list[Response], list[Response]]:
    """The responses with the highest and with the lowest outcome, none of them in both.

    Equal ones keep their order in the record.
    """
    ranked = sorted(responses, key=outcome, reverse=True)
    best = ranked[:count]
    return best, ranked[max(len(best), len(ranked) - count) :][::-1]


def differences(one: Run, other: Run) -> list[tuple[str, Any, Any]]:
    """Key and both values where two configurations differ, the runs' places aside."""
    left, right = one.settings, other.settings
    keys = sorted((left.keys() | right.keys()) - {"trainer.default_local_dir"})
    return [(k, left.get(k), right.get(k)) for k in keys if left.get(k) != right.get(k)]
