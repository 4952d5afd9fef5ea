"""``algorithm.ref_quality_score.scoring``: which judge answers, and how it is asked."""

import re
from collections.abc import Iterator
from typing import Annotated, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, field_validator

from refblend.config.actor_rollout_ref import EngineConfig
from refblend.config.base import (
    Fraction,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    Section,
)

SCORING_KEY = "algorithm.ref_quality_score.scoring"
JUDGES = {
    "vllm": "refblend.scoring.generative:GenerativeJudge",
    "hf": "refblend.scoring.generative:GenerativeJudge",
    "http": "refblend.scoring.endpoint:EndpointJudge",
    "reward_model": "refblend.scoring.reward_model:RewardModelJudge",
    "reference": "refblend.scoring.generative:GenerativeJudge",
}
"""Short names of the judges that come with the package; any other is named ``module:Class``."""


def _is_a_judge(kind: str) -> str:
    if kind not in JUDGES and ":" not in kind:
        raise ValueError(f"use one of {', '.join(map(repr, JUDGES))}, or module:Class of your own")
    return kind


JudgeKind = Annotated[str, AfterValidator(_is_a_judge)]
"""A name of :data:`JUDGES`, or ``module:Class`` of a :class:`refblend.scoring.judge.Judge`."""


class HttpJudgeConfig(Section):
    """``scoring.kind: http``: an endpoint that speaks OpenAI's chat API, as ``vllm serve`` does."""

    base_url: str | None = None
    """Address including the version, as in ``http://localhost:8000/v1``."""
    model: str | None = None
    """The name under which the endpoint serves the judge."""
    bearer_env: str | None = None
    """Environment variable that holds the API key; a key itself belongs in no configuration."""
    timeout_s: PositiveFloat = 60.0
    """Deadline of one attempt, from sending to the last byte of the answer."""
    max_retries: NonNegativeInt = 4
    """Further attempts, with growing pauses, after a lost connection, a missed deadline, or status
    408, 409, 429 or 5xx."""
    concurrency: PositiveInt = 32
    """Requests in flight at once, per process."""
    max_prompt_chars: PositiveInt = 16000
    """Longest prompt, in characters, since only the endpoint can count its tokens."""
    enable_thinking: bool | None = False
    """Whether the judge may think before it answers, sent as ``chat_template_kwargs``, which vLLM
    understands. Null: not sent, for an endpoint that refuses fields it does not know."""

    @field_validator("bearer_env")
    @classmethod
    def _names_a_variable(cls, name: str | None) -> str | None:
        if name is not None and not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
            raise ValueError(
                "this is not the name of an environment variable: put the key into one, and write "
                "its name here, e.g. JUDGE_KEY"
            )
        return name

    def _misfits(self) -> Iterator[str]:
        if self.base_url is None:
            return
        address = urlsplit(self.base_url)
        if address.scheme not in ("http", "https") or not address.hostname:
            yield "base_url is not a web address: write http://HOST:PORT/v1"
        if address.username or address.password or address.query:
            yield (
                "base_url holds a password or a query, and configurations are stored with "
                "results: put the key into an environment variable and name that in bearer_env"
            )


class RewardModelConfig(Section):
    """``scoring.kind: reward_model``: q = σ(scale · (logit − shift)) of a classifier."""

    scale: PositiveFloat = 1.0
    """Steepness: how fast the score leaves 0.5 as the logit leaves ``shift``."""
    shift: float = 0.0
    """The logit that becomes 0.5."""
    batch_size: PositiveInt = 16
    """Conversations per forward pass."""


GUIDED_MIN_TOKENS = len(r"\box{0.00}")
"""A box has that many characters, and so that many tokens at most."""


class ScoringConfig(EngineConfig):
    """How the judge is asked."""

    kind: JudgeKind = "vllm"
    """What answers: a language model on ``vllm`` or ``hf`` (transformers), an endpoint of yours
    (``http``), a sequence-classification ``reward_model``, the actor's starting model
    (``reference``), or your own ``module:Class``."""
    model_path: str | None = None
    """The judge's directory; ``vllm``, ``hf`` and ``reward_model`` need one."""
    http: HttpJudgeConfig = HttpJudgeConfig()
    reward_model: RewardModelConfig = RewardModelConfig()
    templates: str = "default"
    """Prompt texts and few-shot examples: ``default``, ``embedded`` (ours, which the embedded
    judges were trained on), or the path of a YAML file."""
    few_shot: bool = True
    """Show the examples; off: the compact template only."""
    max_new_tokens: PositiveInt = 64
    """Longest answer of the judge, in tokens."""
    hard_clip: bool = True
    """Cut prompts that do not fit; off: they are counted and get ``invalid_score`` unasked."""
    fallback_max_length: PositiveInt = 768
    """A further length cap where ``max_model_len`` is null: many models allow far longer prompts
    than they read well or than memory holds."""
    safety_margin: NonNegativeInt = 16
    """Tokens left free below the cap."""
    temperature: NonNegativeFloat = 0.0
    """0: the judge answers greedily."""
    decoding: Literal["free", "guided"] = "free"
    """``guided``: every answer is a line of working and one box, whatever the judge prefers."""
    score_mode: Literal["text", "expected"] = "expected"
    """``expected``: probability-weighted value of the score's digits; ``text``: as written."""
    on_failure: Literal["invalid_score", "rule_reward"] = "invalid_score"
    """A sample without a valid score gets the neutral score, or its rule reward unblended."""
    max_invalid_rate: Fraction = 0.9
    """The run stops when a larger share of scores is invalid over ``invalid_window`` steps."""
    invalid_window: PositiveInt = 5
    """Steps over which invalid scores are counted."""
    timeout_s: PositiveFloat | None = None
    """Deadline of the judge for a batch; past it the judge is replaced and the batch's samples
    have no valid score. Null: past ``trainer.worker_timeout_s`` it is replaced and asked again."""
    resource_pool: Literal["global_pool", "judge_pool"] = "global_pool"
    """``judge_pool``: a placement group of its own (experiment F)."""
    overlap: bool = True
    """The judge works beside the log-prob passes; off: before them (experiment F)."""
    max_model_len: PositiveInt | None = None
    """Longest prompt + answer of the judge's engine; null: what the model allows, and prompts are
    capped by ``fallback_max_length`` as well."""
    gpu_memory_utilization: float = Field(default=0.3, gt=0, le=1)
    """Share of GPU memory for the judge's engine; unused on the CPU."""
    control: Literal["none", "shuffled", "random", "oracle"] = "none"
    """Controls: scores permuted within the batch (``shuffled``), uniform (``random``), or partial
    credit from the gold solution (``oracle``: half for the right answer, half for the share of the
    solution's equations that the response shows). The last two ask no judge."""

    def _misfits(self) -> Iterator[str]:
        if self.kind == "http":
            if self.num_gpus:
                yield (
                    f"num_gpus={self.num_gpus:g}, but with kind=http the run only asks an "
                    "endpoint: set num_gpus=0"
                )
            for name in ("base_url", "model"):
                if getattr(self.http, name) is None:
                    yield f"http.{name} is needed by kind=http: set it"
            if self.num_engines > 1:
                yield (
                    f"num_engines={self.num_engines}, but with kind=http the engines are yours: "
                    "set num_engines=1, and http.concurrency to the requests under way at once"
                )
        elif self.http.base_url is not None:
            yield (
                f"http.base_url is given, but kind is {self.kind}: set kind=http, or leave it out"
            )
        if self.decoding == "guided" and self.kind == "reward_model":
            yield "a reward_model writes no text to guide: set decoding=free"
        if self.decoding == "guided" and self.max_new_tokens < GUIDED_MIN_TOKENS:
            yield (
                f"max_new_tokens is {self.max_new_tokens}, but the box of decoding=guided takes "
                f"up to {GUIDED_MIN_TOKENS}: raise it"
            )

    @property
    def form(self) -> Literal["full", "compact"]:
        """Of the prompt, where it fits."""
        return "full" if self.few_shot else "compact"

    @property
    def engine(self) -> str:
        """What runs the judge: the reference model is on vLLM."""
        return "vllm" if self.kind == "reference" else self.kind

    @property
    def local_model(self) -> str | None:
        """Directory of a judge that this machine holds; None for one behind HTTP."""
        return None if self.kind == "http" else self.model_path
