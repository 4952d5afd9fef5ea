"""One run end to end on real Ray and vLLM: its files, its metrics, its arithmetic, its samples."""

import itertools
import json
from typing import Any

import pytest

from refblend.config import load_config
from refblend.rollout.base import EngineOptions, GenerationRequest
from refblend.rollout.factory import start_engine
from refblend.seeding import derive_seed
from refblend.trainer.checkpoint import find_damage
from refblend.trainer.datasets import load_run_data

pytestmark = pytest.mark.engine

OURS = "actor/ref_quality"


def below(section: str, names: str) -> set[str]:
    """The metrics of a section; names are separated by blanks."""
    return {f"{section}/{name}" for name in names.split()}


REQUIRED = set().union(
    *(
        below(f"critic/{name}", "mean max min")
        for name in ("score", "rewards", "advantages", "returns")
    ),
    below("response_length", "mean max min clip_ratio"),
    below("prompt_length", "mean max min"),
    below("actor", "entropy pg_loss pg_clipfrac ppo_kl grad_norm lr"),
    below("actor", "reward_kl_penalty reward_kl_penalty_coeff"),
    below(OURS, "weight avg_entropy score_mean score_std nonzero_rate valid_rate"),
    below(OURS, "fallback_rate auc ece reward_length_corr"),
    below(f"{OURS}/counterfactual", "linear cosine exp piecewise constant inverse schedule"),
    below("incidents", "overlength oom judge_invalid judge_error nonfinite"),
    below("training", "global_step epoch rollout_probs_diff_mean rollout_probs_diff_max"),
    below("perf", "total_num_tokens time_per_step throughput"),
    below("timing_s", "step gen reward ref_quality_score old_log_prob ref adv"),
    below("timing_s", "update_actor update_weights"),
)
VALIDATED = {
    f"val-core/{source}/{name}/mean@1"
    for source in ("refblend/arithmetic", "refblend/sanity")
    for name in ("reward", "acc")
}


@pytest.fixture(scope="module")
def steps(undisturbed) -> list[dict[str, Any]]:
    lines = (undisturbed.directory / "metrics.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]


def test_the_run_directory_is_complete(undisturbed):
    run = undisturbed.directory
    assert load_config([run / "config.json"]).trainer.default_local_dir == str(run)
    assert [m["step"] for m in undisturbed.metrics()] == [0, 1, 2, 3, 4]
    summary = undisturbed.summary()
    assert (summary["status"], summary["steps"]) == ("finished", 4)
    assert set(summary["validation"]) == VALIDATED
    provenance = json.loads((run / "provenance.json").read_text())
    assert len(provenance["sessions"]) == 1
    assert provenance["totals"]["wall_time_s"] > 0
    assert list((run / "tensorboard").glob("events.out.tfevents.*"))
    assert sorted(p.name for p in (run / "rollouts").iterdir()) == [
        f"{k}.jsonl" for k in range(1, 5)
    ]


@pytest.mark.slow
def test_the_best_is_kept_where_validations_and_checkpoints_do_not_meet(make_run):
    """Validated at steps 3 and 4, saved at 2 and 4: step 3 is the best so far when it is seen."""
    run = make_run("trainer.keep_best=true", "trainer.save_freq=2", "trainer.test_freq=3")
    run.complete()
    found = {path.name for path in (run.directory / "checkpoints").glob("global_step_*")}
    assert found == {"global_step_3", "global_step_4"}


def test_checkpoints_have_verl_s_layout_and_load_in_transformers(undisturbed):
    from transformers import AutoModelForCausalLM, AutoTokenizer

    root = undisturbed.directory / "checkpoints"
    assert sorted(p.name for p in root.iterdir()) == [
        "global_step_2",
        "global_step_4",
        "latest_checkpointed_iteration.txt",
    ]
    assert (root / "latest_checkpointed_iteration.txt").read_text() == "4\n"
    for step in (2, 4):
        assert find_damage(root / f"global_step_{step}") is None
        assert not (root / f"global_step_{step}" / "critic").exists()
    actor = root / "global_step_4" / "actor"
    assert AutoModelForCausalLM.from_pretrained(actor).num_parameters() > 0
    assert AutoTokenizer.from_pretrained(actor).chat_template
    assert undisturbed.weights(2) != undisturbed.weights(4)


SOMETIMES = {f"{OURS}/auc", f"{OURS}/ece", f"{OURS}/reward_length_corr"}
"""Not defined where all answers are right, or all wrong, or of one length."""


def test_every_promised_metric_is_there_and_finite(steps):
    for record in steps[1:]:
        assert REQUIRED - set(record) - SOMETIMES == set(), record["step"]
        assert [k for k, v in record.items() if v is None] == []
    assert set().union(*steps) >= SOMETIMES
    for record in steps:
        assert (set(record) >= VALIDATED) == (record["step"] in (0, 2, 4))
    assert all(record["actor/grad_norm"] > 0 for record in steps[1:])


def test_the_records_of_the_responses_agree_with_the_metrics(undisturbed, steps):
    for record in steps[1:]:
        rows = undisturbed.rollouts(record["step"])
        assert len(rows) == 16
        assert len({(row["uid"], row["sample"]) for row in rows}) == 16

        def mean(name: str, rows=rows) -> float:
            return sum(row[name] for row in rows) / len(rows)

        assert record["critic/score/mean"] == pytest.approx(mean("reward"), rel=1e-5)
        assert record["response_length/mean"] == pytest.approx(mean("length"))
        assert record[f"{OURS}/score_mean"] == pytest.approx(mean("judge_score"))
        assert record[f"{OURS}/valid_rate"] == pytest.approx(mean("judge_valid"))
        assert record["incidents/judge_invalid"] == sum(r["judge_path"] == "default" for r in rows)
    everything = [row for record in steps[1:] for row in undisturbed.rollouts(record["step"])]
    assert sum(row["judge_valid"] for row in everything) > len(everything) / 2
    assert len({row["judge_score"] for row in everything}) > 2


def test_the_reward_of_the_first_step_by_hand(undisturbed, steps):
    """Σ_t R' = (1 − w)R + w·q·L, and the KL is 0: actor and reference are the same still."""
    record = steps[1]
    assert record["actor/reward_kl_penalty"] == pytest.approx(0.0, abs=1e-6)
    w = record[f"{OURS}/weight"]
    wanted = [
        (1 - w) * row["reward"] + w * row["judge_score"] * row["length"]
        for row in undisturbed.rollouts(1)
    ]
    assert record["critic/rewards/mean"] == pytest.approx(sum(wanted) / 16, rel=1e-4)
    assert record["critic/rewards/max"] == pytest.approx(max(wanted), rel=1e-4)
    assert record["critic/rewards/min"] == pytest.approx(min(wanted), rel=1e-4)


def test_the_kl_coefficient_adapts_and_the_actor_leaves_the_reference(steps):
    assert steps[1]["actor/reward_kl_penalty_coeff"] == 0.01
    assert steps[4]["actor/reward_kl_penalty"] != 0.0
    for before, after in itertools.pairwise(steps[1:]):
        error = max(-0.2, min(0.2, before["actor/reward_kl_penalty"] / 0.1 - 1))
        wanted = before["actor/reward_kl_penalty_coeff"] * (1 + error * 16 / 10000)
        assert after["actor/reward_kl_penalty_coeff"] == pytest.approx(wanted)


def test_the_engine_samples_from_the_trainer_s_weights(steps):
    """A stale or mispacked weight would show here from the second step on."""
    for record in steps[1:]:
        assert record["training/rollout_probs_diff_max"] < 1e-4


def test_the_samples_of_the_first_step_are_the_starting_model_s(undisturbed):
    """The oracle is an engine on the untouched model, with no trainer around it."""
    config = load_config([undisturbed.directory / "config.json"])
    data = load_run_data(config)
    rows = undisturbed.rollouts(1)
    requests = [
        GenerationRequest(
            data.train.prompt_ids[row["uid"]],
            config.data.max_response_length,
            1.0,
            derive_seed(1, "rollout", 1, row["uid"], row["sample"]),
        )
        # another order and other batches than the trainer's
        for row in reversed(rows)
    ]
    model = config.actor_rollout_ref.model.path
    engine = start_engine("vllm", EngineOptions(model, 256, kv_cache_memory_mb=32))
    try:
        answers = engine.generate(requests[:5]) + engine.generate(requests[5:])
    finally:
        engine.shutdown()
    texts = [data.decode(answer.token_ids) for answer in reversed(answers)]
    assert [row["response"] for row in rows] == texts


def finite(record: dict[str, Any]) -> bool:
    return all(value is not None for value in record.values())


def test_gae_with_a_critic_that_warms_up(make_run):
    run = make_run(
        "actor_rollout_ref.rollout.name=hf",
        "algorithm.ref_quality_score.enable=false",
        "algorithm.adv_estimator=gae",
        "trainer.critic_warmup=1",
        "trainer.total_training_steps=2",
        "actor_rollout_ref.actor.optim.lr_warmup_steps=2",
    )
    run.complete()
    _, first, second = run.metrics()
    assert finite(first)
    assert finite(second)
    for record in (first, second):
        assert record["critic/grad_norm"] > 0
        for name in ("vf_loss", "vf_explained_var", "values/mean"):
            assert f"critic/{name}" in record
    assert "actor/grad_norm" not in first, "only the critic learns in the first step"
    assert second["actor/grad_norm"] > 0
    assert second["actor/lr"] == pytest.approx(5e-4), "the first of the actor's own two steps"
    assert second["actor/reward_kl_penalty"] == pytest.approx(0.0, abs=1e-6)
    assert run.weights(2, "critic")


@pytest.mark.slow
def test_a_colocated_reference_gives_the_same_run(make_run, undisturbed):
    run = make_run("actor_rollout_ref.ref.colocated=true")
    run.complete()
    run.assert_same(undisturbed)


ESTIMATORS = ("rloo", "reinforce_plus_plus", "reinforce_plus_plus_baseline", "remax")


@pytest.mark.slow
@pytest.mark.parametrize(
    "overrides",
    [
        *([f"algorithm.adv_estimator={name}"] for name in ESTIMATORS),
        ["algorithm.ref_quality_score.scoring.resource_pool=judge_pool"],
        ["algorithm.ref_quality_score.scoring.control=random"],
        ["algorithm.ref_quality_score.enable=false", "algorithm.use_kl_in_reward=false"],
        [
            "algorithm.repr_align.enable=true",
            "actor_rollout_ref.actor.use_kl_loss=true",
            "actor_rollout_ref.actor.entropy_coeff=0.01",
            "actor_rollout_ref.actor.ppo_mini_batch_size=2",
            "algorithm.rollout_correction.mode=truncate",
        ],
    ],
    ids=[*ESTIMATORS, "judge_pool", "random", "off", "everything"],
)
def test_other_configurations_run(make_run, overrides):
    run = make_run("trainer.total_training_steps=2", *overrides)
    run.complete()
    for record in run.metrics():
        assert finite(record)
    assert run.metrics()[2]["actor/grad_norm"] > 0
