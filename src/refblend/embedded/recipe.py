"""The recipe of the embedded data and models: ``params/embedded/<scale>.yaml``, key by key."""

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from refblend.config.base import Fraction, NonNegativeInt, PositiveFloat, PositiveInt, Section
from refblend.config.loading import checked, read_yaml
from refblend.embedded.problems import Difficulty

Strength = Literal["weak", "medium", "strong"]
VLLM_HEAD_SIZES = (32, 64, 80, 96, 112, 128, 160, 192, 224, 256, 512)
"""Head sizes of vLLM 0.32's attention on CPUs; a model with another one loads and then fails."""
STRENGTHS: tuple[Strength, ...] = ("weak", "medium", "strong")


class PretrainedRecipe(Section):
    """A pretrained model instead of our own, and sums of reasoning-gym instead of our problems."""

    model: str = "models/smollm/base"
    """Directory of the model that actor and judges start from; its tokenizer is used."""
    dtype: Literal["float32", "bfloat16"] = "bfloat16"
    """Precision of the supervised passes; weights and optimiser stay in float32."""
    task: dict[str, int] = Field(
        default={"min_terms": 2, "max_terms": 3, "min_digits": 1, "max_digits": 2}
    )
    """Options of reasoning-gym's task ``chain_sum``."""
    outside_task: str = "gsm_symbolic"
    """Task of the sanity split: another kind of problem, to see what training does to it."""


class DataRecipe(Section):
    """The generated prompt files."""

    seed: NonNegativeInt = 1
    """Seed of the problems; the splits do not depend on it."""
    train_rows: PositiveInt = 4096
    """Prompts for reinforcement learning."""
    validation_rows: PositiveInt = 256
    """Prompts evaluated during training."""
    test_rows: PositiveInt = 512
    """Prompts of the final evaluation."""
    sanity_rows: PositiveInt = 64
    """Items of the drift guard, known to the actor."""
    long_share: Fraction = 0.03
    """Share of train, validation and test problems padded with irrelevant sentences."""
    difficulty: Difficulty = Difficulty()
    """Sizes of the numbers and shares of one, two and three steps."""


class TokenizerRecipe(Section):
    """The byte-level BPE."""

    vocab_size: Annotated[int, Field(ge=300)] = 608
    """Entries at most, special tokens included."""
    corpus_problems: PositiveInt = 3000
    """Problems whose texts are used for training."""
    terse_share: Fraction = 0.1
    """As the actor's, of these texts: another sloppy phase keeps the tokenizer."""
    wrong_step_probability: Fraction = 0.25
    """As the actor's, of these texts."""
    filler_share: Annotated[float, Field(ge=0, lt=0.9)] = 0.4
    """As the actor's, of these texts."""
    model_max_length: PositiveInt = 1024
    """Recorded as the tokenizer's limit."""


class ArchitectureRecipe(Section):
    """The shape of the Qwen2 network shared by actor and judge."""

    hidden_size: PositiveInt = 128
    """Width of the residual stream."""
    num_layers: PositiveInt = 4
    """Decoder layers."""
    num_heads: PositiveInt = 4
    """Query heads; hidden_size / num_heads is the head size."""
    num_kv_heads: PositiveInt = 2
    """Key and value heads; divides num_heads."""
    mlp_size: PositiveInt = 384
    """Width of the gated MLP."""
    max_positions: PositiveInt = 1024
    """Longest sequence of the model."""

    def _misfits(self) -> Iterator[str]:
        if self.hidden_size % self.num_heads or self.num_heads % self.num_kv_heads:
            yield "hidden_size must be a multiple of num_heads, and num_heads of num_kv_heads"
        if self.hidden_size // self.num_heads not in VLLM_HEAD_SIZES:
            yield f"hidden_size / num_heads must be one of {VLLM_HEAD_SIZES} (vLLM on CPUs)"


class PhaseRecipe(Section):
    """One phase of supervised training."""

    steps: PositiveInt
    """Updates."""
    batch_size: PositiveInt = 64
    """Demonstrations per update."""
    learning_rate: PositiveFloat = 2e-3
    """Constant between warm-up and decay."""
    warmup_steps: NonNegativeInt = 10
    """Updates over which the rate rises from 0."""
    decay_steps: NonNegativeInt = 0
    """Last updates, over which the rate falls to 0."""


class ActorRecipe(Section):
    """The warm start: a clean phase, then a short sloppy one (see demonstrations.py)."""

    seed: NonNegativeInt = 2
    """Seed of initial weights and demonstrations."""
    clean: PhaseRecipe = PhaseRecipe(steps=250, learning_rate=3e-3)
    """Worked solutions only."""
    sloppy: PhaseRecipe | None = PhaseRecipe(steps=70, learning_rate=1e-3, warmup_steps=0)
    """Terse and rambling demonstrations; null: the actor is the clean warm start."""
    terse_share: Fraction = 0.1
    """Share of right answers without steps in the sloppy phase; the others ramble."""
    wrong_step_probability: Fraction = 0.35
    """Probability that a step of a rambling demonstration is wrong."""
    filler_share: Annotated[float, Field(ge=0, lt=0.9)] = 0.4
    """Probability of one more filler sentence before each step."""


class JudgeDataRecipe(Section):
    """Pairs of problem and response for training the judge."""

    seed: NonNegativeInt = 3
    """Seed of problems, samples and corruptions."""
    problems: PositiveInt = 4000
    """Training problems; test problems come from the test split."""
    samples_per_problem: PositiveInt = 2
    """Responses sampled from the two warm starts together; the final one has the larger half."""
    gold_per_problem: Fraction = 0.5
    """Gold solutions per problem."""
    corruptions_per_problem: PositiveInt = 2
    """Corrupted solutions per problem."""
    test_problems: PositiveInt = 512
    """Problems of the held-out pairs."""
    max_response_tokens: PositiveInt = 60
    """Length limit of sampled responses."""


class StrengthSteps(Section):
    """Updates after which each strength is saved; one chain, weak first."""

    weak: PositiveInt = 170
    """Updates of the weak judge."""
    medium: PositiveInt = 340
    """Updates of the medium judge, those of weak included."""
    strong: PositiveInt = 680
    """Updates of the strong judge, those of medium included."""

    def _misfits(self) -> Iterator[str]:
        if not self.weak < self.medium < self.strong:
            yield "steps must rise from weak to medium to strong"


class JudgeRecipe(Section):
    """Training of the judge: one chain with three snapshots."""

    seed: NonNegativeInt = 4
    """Seed of the order of pairs and prompt forms."""
    steps: StrengthSteps = StrengthSteps()
    """Updates after which each strength is saved."""
    batch_size: PositiveInt = 64
    """Pairs per update."""
    learning_rate: PositiveFloat = 1.5e-3
    """Constant after the warm-up."""
    warmup_steps: NonNegativeInt = 10
    """Updates over which the rate rises from 0."""
    box_weight: PositiveFloat = 3.0
    """Weight in the loss of the copied answer, the comparison and the box; the chain weighs 1."""
    few_shot_share: Fraction = 0.5
    """Share of prompts with the few-shot examples; the others are compact."""
    drill_share: Fraction = 0.15
    """Share of drills that only compare two numbers and write the box."""


class EvaluationRecipe(Section):
    """Measuring the finished models."""

    problems: PositiveInt = 512
    """Test problems for the actor, held-out pairs for the judge, at most."""
    samples: PositiveInt = 8
    """Responses sampled for each problem (pass@k)."""
    max_new_tokens: PositiveInt = 60
    """Length limit of the actor's responses."""
    judge_samples: PositiveInt = 1
    """Responses to each problem of the held-out pairs; with several, the judge's AUC within a
    question is measured."""


class EmbeddedConfig(Section):
    """Everything that determines the embedded data and models of one scale."""

    @property
    def bfloat16(self) -> bool:
        """Whether supervised passes run in bfloat16."""
        return self.pretrained is not None and self.pretrained.dtype == "bfloat16"

    pretrained: PretrainedRecipe | None = None
    """Start from a pretrained model; null: from random weights of ``architecture``."""
    data: DataRecipe = DataRecipe()
    """Prompt files."""
    tokenizer: TokenizerRecipe = TokenizerRecipe()
    """Byte-level BPE."""
    scoring_templates: str = "embedded"
    """Texts of the scoring prompt: tokenizer and judges are trained on them."""
    architecture: ArchitectureRecipe = ArchitectureRecipe()
    """Network shape."""
    actor: ActorRecipe = ActorRecipe()
    """Warm start of the actor."""
    judge_data: JudgeDataRecipe = JudgeDataRecipe()
    """Pairs for the judges."""
    judge: JudgeRecipe = JudgeRecipe()
    """Training of the judges."""
    evaluation: EvaluationRecipe = EvaluationRecipe()
    """Measurements."""


def load_recipe(path: str | Path) -> EmbeddedConfig:
    """Read and check a recipe; ConfigError names file, key and remedy."""
    return checked(EmbeddedConfig, read_yaml(path), f"recipe {path}: ")
