"""Make rollouts for the advice: the model answers, rule and judge score."""

import pandas as pd

from refblend import runtime
from refblend.config import RefblendConfig
from refblend.config.scoring import SCORING_KEY
from refblend.data.dataset import load_prompt_dataset
from refblend.data.tokenizer import decode_response, load_tokenizer
from refblend.errors import ConfigError
from refblend.rewards.imperfect import imperfect_rewards
from refblend.rewards.rule import RuleReward
from refblend.rollout.base import GenerationRequest
from refblend.rollout.factory import start_rollout
from refblend.scoring.judge import check_judge, start_judge
from refblend.seeding import derive_generator, derive_seed
from refblend.workers.roles import changed


def sample_rollouts(config: RefblendConfig, prompts: int) -> pd.DataFrame:
    """Rollouts as :func:`refblend.advise` takes them, ``rollout.n`` for each of some prompts.

    Generation, rule reward (with ``reward.verifier``'s faults) and judge are those that training
    with this configuration would start with; the truth is the rule's accuracy. The prompts are
    drawn with the run's seed. Engine and judge run one after the other, in this process.
    RefblendError if data, model, rule or judge cannot be used.
    """
    if not config.use_judge:
        raise ConfigError(
            "the configuration has no judge to ask",
            "Name one by --judge, or set algorithm.ref_quality_score.scoring.model_path.",
        )
    # vLLM lets only one engine of a process sleep, and here none has to.
    awake = {"actor_rollout_ref.rollout.sleep": False, f"{SCORING_KEY}.sleep": False}
    config = changed(config, awake)
    quality, seed = config.algorithm.ref_quality_score, config.trainer.seed
    check_judge(quality)
    reward = RuleReward.from_config(config.reward)
    model, keep = str(config.actor_rollout_ref.model.path), config.reward.keep_special_tokens
    tokenizer, wanted = load_tokenizer(model), config.data
    overlong = (wanted.max_prompt_length, wanted.filter_overlong_prompts, wanted.truncation)
    data = load_prompt_dataset(wanted.train_files, tokenizer, *overlong)
    order = derive_generator(seed, "advise").permutation(len(data))[:prompts]
    samples = config.actor_rollout_ref.rollout.n
    places = [(int(row), sample) for row in order for sample in range(samples)]
    requests = [
        GenerationRequest(
            prompt_ids=data.prompt_ids[row],
            max_new_tokens=config.data.max_response_length,
            temperature=config.actor_rollout_ref.rollout.temperature,
            seed=derive_seed(seed, "advise", row, sample),
            log_probs=False,
        )
        for row, sample in places
    ]
    runtime.prepare_process(config.actor_rollout_ref.rollout.num_threads)
    engine = start_rollout(config, model)
    try:
        answers = engine.generate(requests)
    finally:
        engine.shutdown()
    texts = [decode_response(tokenizer, answer.token_ids, keep) for answer in answers]
    rows = [data.rows[row] for row, _ in places]
    results = reward.of_rows(rows, texts)
    with start_judge(quality, derive_seed(seed, "judge engine")) as judge:
        judged = judge.score([row.question for row in rows], texts)
    scores = [result.score for result in results]
    return pd.DataFrame(
        {
            "prompt_id": [str(row) for row, _ in places],
            "response": texts,
            "reward": imperfect_rewards(config.reward.verifier, scores, places, 1, seed),
            "judge_score": [result.score for result in judged],
            "truth": [result.accuracy(config.reward.method) for result in results],
            "length": [len(answer.token_ids) for answer in answers],
        }
    )
