"""A whole run with an adapter: one engine for actor and judge, or one each, say the same."""

import pytest
from peft import PeftModel
from transformers import AutoModelForCausalLM

pytestmark = [pytest.mark.engine, pytest.mark.slow]

SCORING = "algorithm.ref_quality_score.scoring"
LORA = [
    "actor_rollout_ref.model.lora_rank=4",
    "actor_rollout_ref.rollout.max_model_len=384",
    f"{SCORING}.kind=reference",
    f"{SCORING}.model_path=null",
    f"{SCORING}.max_model_len=null",
    f"{SCORING}.fallback_max_length=384",
    f"{SCORING}.kv_cache_memory_mb=256",
]


def test_one_engine_and_several_say_the_same(make_run, tiny_model_dir):
    """The one engine gets its adapter from two ranks."""
    runs = {}
    for lora, ranks in (("merged", 1), ("adapter", 2)):
        fsdp = f"actor_rollout_ref.actor.fsdp_config.world_size={ranks}"
        run = runs[lora] = make_run(*LORA, f"actor_rollout_ref.rollout.lora={lora}", fsdp)
        said = run.complete()
        assert ("judge is ready" in said) == (lora == "merged")
        assert "ref is ready" not in said
        for record in run.metrics()[1:]:
            assert record["training/rollout_probs_diff_max"] < 1e-4
        assert run.metrics()[4]["actor/reward_kl_penalty"] != 0.0
    first, second = (run.rollouts(1) for run in runs.values())
    assert [row["judge_raw"] for row in first] == [row["judge_raw"] for row in second]
    assert [row["response"] for row in first] == [row["response"] for row in second]
    actor = runs["adapter"].directory / "checkpoints" / "global_step_4" / "actor"
    base = AutoModelForCausalLM.from_pretrained(tiny_model_dir)
    learned = PeftModel.from_pretrained(base, actor / "lora_adapter")
    assert any(p.abs().max() > 0 for n, p in learned.named_parameters() if "lora_B" in n)
    AutoModelForCausalLM.from_pretrained(actor)
