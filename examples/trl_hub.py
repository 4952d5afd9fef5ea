"""A model of the Hugging Face hub, trained with TRL and the blend.

pip install '.[trl]'                                   # in a clone
python examples/trl_hub.py --judge FOLDER              # best on a GPU; GRPOConfig's options, too
"""

from dataclasses import dataclass

from datasets import load_dataset
from trl import GRPOConfig, TrlParser

from refblend import Judge, WeightParams
from refblend.integrations.trl import BlendedGRPOTrainer, JudgeReward
from refblend.rewards.gsm8k import compute_score


@dataclass
class Options:
    """What is trained, on what, judged by what."""

    judge: str  # the folder of a downloaded model
    actor: str = "Qwen/Qwen2.5-0.5B-Instruct"
    data: str = "openai/gsm8k"


def correct(completions: list, answer: list[str], **_: object) -> list[float]:
    """The rule reward R: 1 where the last number is the one after the answer's ####."""
    pairs = zip(completions, answer, strict=True)
    return [compute_score(c[0]["content"], a.split("#### ")[-1], "flexible") for c, a in pairs]


options, args = TrlParser((Options, GRPOConfig)).parse_args_and_config()
data = load_dataset(options.data, "main", split="train")
data = data.map(lambda row: {"prompt": [{"role": "user", "content": row["question"]}]})
with Judge.open(options.judge, engine="hf") as judge:
    blend = {"strategy": "constant", "weight_params": WeightParams(max_weight=0.45)}
    blend["judge"] = JudgeReward(judge)
    trl = {"model": options.actor, "reward_funcs": [correct], "train_dataset": data, "args": args}
    BlendedGRPOTrainer(**trl, **blend).train()
