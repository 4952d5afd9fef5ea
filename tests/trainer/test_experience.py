"""The order of a step's computations: the driver scores by rule while other processes work."""

from types import SimpleNamespace
from typing import Any

import pytest

from refblend.scoring.result import InvalidRateGuard
from refblend.trainer import experience
from refblend.trainer.experience import ExperienceCollector
from refblend.trainer.step_metrics import StepRecord

SCORING = "algorithm.ref_quality_score.scoring"


@pytest.mark.parametrize(
    ("settings", "order"),
    [
        ([f"{SCORING}.overlap=true"], "judge passes rule judged"),
        ([f"{SCORING}.overlap=false"], "judge rule judged passes"),
        ([f"{SCORING}.overlap=false", f"{SCORING}.control=random"], "passes rule"),
    ],
)
def test_the_rule_reward_waits_for_nobody(tiny_config, monkeypatch, settings, order):
    begun: list[str] = []
    config = tiny_config("algorithm.ref_quality_score.enable=true", *settings)

    def judge(*columns: Any) -> object | None:
        return begun.append("judge") or object() if config.use_judge else None

    def judged(*arguments: Any) -> tuple[list[Any], Any]:
        begun.append("judged")
        return [], SimpleNamespace(metrics=dict)

    def forward(role: Any, *call: Any) -> None:
        begun.extend(["passes"] * (role is experience.ACTOR))

    def rule(rows: list[Any], texts: list[str]) -> list[Any]:
        begun.append("rule")
        return []

    def joined(*call: Any) -> None:
        raise InterruptedError("the passes are waited for")

    names = {"judge_responses": judge, "judge_results": judged, "forward": forward}
    workers: Any = SimpleNamespace(**names, notify=print)
    collector = ExperienceCollector(config, SimpleNamespace(), workers, InvalidRateGuard(0.5, 4))
    monkeypatch.setattr(collector.reward, "of_rows", rule)
    monkeypatch.setattr(experience, "_joined", joined)
    prompts: Any = SimpleNamespace(rows=[], uids=[], sample_index=[])
    rollout: Any = SimpleNamespace(sequences=None, greedy=None, texts=[])
    with pytest.raises(InterruptedError):
        collector.collect(prompts, rollout, 1, StepRecord())
    assert begun == order.split()
