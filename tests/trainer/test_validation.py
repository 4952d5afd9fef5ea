"""Layout of the validation requests and the metrics made of the answers, by hand."""

import pytest

from refblend.config.actor_rollout_ref import ValKwargs
from refblend.data.dataset import PromptDataset
from refblend.data.schema import PromptRow
from refblend.rewards.rule import RuleReward
from refblend.rollout.base import Generation
from refblend.trainer.validation import ValidationSet, validation_metrics, validation_requests

MAIN, SANITY = "refblend/arithmetic", "refblend/sanity"


def dataset(source: str, truths: list[str]) -> PromptDataset:
    rows = [PromptRow(i, source, [], "q", truth, "") for i, truth in enumerate(truths)]
    return PromptDataset(rows, [[7, i] for i in range(len(truths))], 0, 0)


SETS = [
    ValidationSet(dataset(MAIN, ["1", "2", "3"]), limit=2),
    # Any rows may be the sanity set: it is named by its purpose, not by its rows' source.
    ValidationSet(dataset(MAIN, ["4"]), source=SANITY),
]


def answer(text: str) -> Generation:
    return Generation([ord(c) for c in text], [0.0] * len(text), "stop", 0)


def decode(ids: list[int]) -> str:
    return "".join(map(chr, ids))


def test_greedy_first_then_the_samples_of_each_prompt():
    requests = validation_requests(SETS, ValKwargs(n=2, temperature=0.7), 60, seed=3)
    assert [list(r.prompt_ids) for r in requests] == [[7, 0]] * 3 + [[7, 1]] * 3 + [[7, 0]] * 3
    assert [r.temperature for r in requests] == [0.0, 0.7, 0.7] * 3
    assert {r.max_new_tokens for r in requests} == {60}
    assert len({r.seed for r in requests}) == 9, "siblings and sets have seeds of their own"
    again = validation_requests(SETS, ValKwargs(n=2, temperature=0.7), 60, seed=3)
    assert again == requests
    other = validation_requests(SETS, ValKwargs(n=2, temperature=0.7), 60, seed=4)
    assert not {r.seed for r in other} & {r.seed for r in requests}


@pytest.mark.parametrize("kwargs", [ValKwargs(n=0), ValKwargs(n=5, do_sample=False)])
def test_greedy_only(kwargs):
    requests = validation_requests(SETS, kwargs, 60, seed=3)
    assert [r.temperature for r in requests] == [0.0] * 3


def test_metrics_by_hand():
    # greedy, sample, sample; the first prompt's truth is 1, the second's 2, the sanity item's 4
    texts = ["#### 1", "#### 1", "no", "it is 2", "#### 3", "so 2", "#### 4", "#### 5", "4 or 6"]
    answers = [answer(t) for t in texts]
    metrics = validation_metrics(SETS, ValKwargs(n=2), answers, decode, RuleReward("flexible"))
    assert metrics == pytest.approx(
        {
            f"val-core/{MAIN}/reward/mean@1": 1.0,
            f"val-core/{MAIN}/acc/mean@1": 1.0,
            f"val-aux/{MAIN}/acc_strict/mean@1": 0.5,
            f"val-aux/{MAIN}/acc_flexible/mean@1": 1.0,
            f"val-aux/{MAIN}/response_length/mean@1": 6.5,
            f"val-aux/{MAIN}/reward/mean@2": 0.5,
            f"val-aux/{MAIN}/acc/mean@2": 0.5,
            f"val-aux/{MAIN}/acc/best@2": 1.0,
            f"val-core/{SANITY}/reward/mean@1": 1.0,
            f"val-core/{SANITY}/acc/mean@1": 1.0,
            f"val-aux/{SANITY}/acc_strict/mean@1": 1.0,
            f"val-aux/{SANITY}/acc_flexible/mean@1": 1.0,
            f"val-aux/{SANITY}/response_length/mean@1": 6.0,
            f"val-aux/{SANITY}/reward/mean@2": 0.0,
            f"val-aux/{SANITY}/acc/mean@2": 0.0,
            f"val-aux/{SANITY}/acc/best@2": 0.0,
        }
    )
    assert list(metrics) == sorted(metrics)


def test_strict_accuracy_is_the_headline_of_a_strict_run():
    answers = [answer(t) for t in ("it is 1", "#### 2", "#### 4")]
    metrics = validation_metrics(SETS, ValKwargs(n=0), answers, decode, RuleReward("strict"))
    assert metrics[f"val-core/{MAIN}/acc/mean@1"] == 0.5
    assert metrics[f"val-core/{MAIN}/reward/mean@1"] == 0.5
    assert metrics[f"val-aux/{MAIN}/acc_flexible/mean@1"] == 1.0
    assert not any("@0" in name or "best" in name for name in metrics)
