"""Rollouts that the advice makes itself, with small models and the Hugging Face engine."""

from refblend.advice.sampling import sample_rollouts


def test_a_model_answers_and_a_judge_scores(tiny_config, tiny_model_dir):
    config = tiny_config(
        "actor_rollout_ref.rollout.name=hf",
        "actor_rollout_ref.rollout.n=2",
        "algorithm.ref_quality_score.enable=true",
        f"algorithm.ref_quality_score.scoring.model_path={tiny_model_dir}",
        "algorithm.ref_quality_score.scoring.kind=hf",
        "reward.verifier.flip_rate=0.5",
    )
    frame = sample_rollouts(config, prompts=4)
    assert frame.groupby("prompt_id").size().tolist() == [2] * 4
    assert (frame.reward != frame.truth).any()
    assert frame.judge_score.between(0, 1).all()
    assert frame.equals(sample_rollouts(config, prompts=4))
