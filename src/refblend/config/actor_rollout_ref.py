"""``actor_rollout_ref.*`` and ``critic.*``: the trained models and the rollout engine."""

from collections.abc import Iterator
from typing import Annotated, Any, Literal

from pydantic import Field

from refblend.config.base import (
    Decay,
    Node,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    Section,
)
from refblend.ppo.choices import KlType, LossAggMode

Dtype = Literal["float32", "bfloat16"]


class ModelConfig(Section):
    """The model that is trained; also the start of the reference policy and of the critic."""

    path: str
    """A local directory in Hugging Face format."""
    enable_gradient_checkpointing: bool = False
    """Recompute activations in the backward pass: less memory, about a third more time."""
    use_shared_prefix: bool = True
    """Compute what a micro-batch's sequences have in common only once: prompts, and beginnings that
    responses share. Values and gradients stay the same up to rounding. False: every sequence by
    itself, padded to the longest, for models whose attention is not plain causal."""
    trust_remote_code: bool = False
    """Run Python code that ships with the model. Off: a model directory is data."""
    lora_rank: NonNegativeInt = 0
    """Train an adapter of this rank (LoRA) and leave the actor's model as it is; the reference
    policy is then the actor without its adapter. 0: all weights are trained."""
    lora_alpha: PositiveFloat = 16.0
    """The adapter's product B·A is scaled by ``lora_alpha / lora_rank``."""
    target_modules: str | list[str] = "all-linear"
    """Layers with an adapter: ``all-linear`` (all but the head), a list of names such as
    ``[q_proj, v_proj]``, or a regular expression."""


Temperature = Annotated[float, Field(ge=0.01, allow_inf_nan=False)]


class OptimConfig(Section):
    """AdamW with linear warm-up and a constant or cosine schedule."""

    lr: NonNegativeFloat = 1e-6
    """Peak learning rate; 0 freezes the model (used by the weight-sync test)."""
    weight_decay: NonNegativeFloat = 0.0
    """Decoupled weight decay of AdamW."""
    betas: tuple[Decay, Decay] = (0.9, 0.999)
    """Decay rates of AdamW's first and second moments."""
    lr_warmup_steps: NonNegativeInt = 0
    """Steps over which the rate rises linearly to ``lr``; the actor's begin after
    ``trainer.critic_warmup``."""
    lr_scheduler_type: Literal["constant", "cosine"] = "constant"
    """What the rate does after the warm-up; ``cosine`` reaches 0 when the last step is done."""


class FsdpConfig(Section):
    """Sharding and precision of one worker group."""

    world_size: PositiveInt = 1
    """Processes of the group; FSDP2 shards parameters over them when there is more than one."""
    replicas: PositiveInt = 1
    """Copies of the parameters (HSDP): each is sharded over ``world_size / replicas`` neighbouring
    processes, and only gradients pass between copies. With one copy per node, parameters are
    gathered within nodes only, at the price of more memory per process. 1: sharded over all."""
    num_threads: PositiveInt = 1
    """CPU threads of each process."""
    param_dtype: Dtype = "float32"
    """Precision of forward and backward; master weights stay in float32."""
    num_gpus_per_worker: NonNegativeFloat = 0.0
    """GPUs reserved for each process; 0 places it on the CPU."""

    def _misfits(self) -> Iterator[str]:
        if self.world_size > 1 and 0 < self.num_gpus_per_worker <= 0.5:
            yield (
                f"num_gpus_per_worker={self.num_gpus_per_worker} would put several of the "
                f"{self.world_size} ranks on one GPU, which NCCL cannot do: set it above 0.5, or "
                "world_size to 1"
            )
        if self.world_size % self.replicas:
            yield (
                f"replicas={self.replicas} does not divide world_size={self.world_size}: make each "
                "copy of the parameters span the same number of processes"
            )


class TrainWorkerConfig(Section):
    """What actor and critic share: batches, precision, optimiser."""

    ppo_mini_batch_size: PositiveInt | None = None
    """Prompts per optimiser step (multiplied by ``rollout.n``); null: the whole batch."""
    ppo_micro_batch_size_per_gpu: PositiveInt | None = None
    """Sequences per forward pass, with ``use_dynamic_bsz: false``; null: by token budget."""
    use_dynamic_bsz: bool = True
    """Fill micro-batches up to ``ppo_max_token_len_per_gpu`` tokens, sequences sorted by length."""
    ppo_max_token_len_per_gpu: PositiveInt = 8192
    """Token budget of one micro-batch. With ``model.use_shared_prefix`` a prompt counts once for
    its responses, which count in full; otherwise all tokens count, padding included."""
    ppo_epochs: PositiveInt = 1
    """Passes over the batch per step."""
    grad_clip: PositiveFloat = 1.0
    """Largest global gradient norm."""
    optim: OptimConfig = OptimConfig()
    """Optimiser and learning rate."""
    fsdp_config: FsdpConfig = FsdpConfig()
    """Processes, precision and devices."""
    node: Node = None

    def _misfits(self) -> Iterator[str]:
        if not self.use_dynamic_bsz and self.ppo_micro_batch_size_per_gpu is None:
            yield (
                "ppo_micro_batch_size_per_gpu is needed when use_dynamic_bsz is false: set a number"
            )
        if self.use_dynamic_bsz and self.ppo_micro_batch_size_per_gpu is not None:
            yield (
                f"ppo_micro_batch_size_per_gpu={self.ppo_micro_batch_size_per_gpu} has no effect "
                "while use_dynamic_bsz is true: set that to false, or lower "
                "ppo_max_token_len_per_gpu instead"
            )


class ActorConfig(TrainWorkerConfig):
    """The policy's update (PPO, arXiv 1707.06347)."""

    clip_ratio: PositiveFloat = 0.2
    """ε of the clipped ratio; ``clip_ratio_low``/``high`` override one side."""
    clip_ratio_low: PositiveFloat | None = None
    """ε of the lower bound 1 − ε, at most 1 (no bound); null: ``clip_ratio``."""
    clip_ratio_high: PositiveFloat | None = None
    """ε of the upper bound 1 + ε (clip-higher of DAPO); null: ``clip_ratio``."""
    clip_ratio_c: float = Field(default=3.0, gt=1.0)
    """Dual clip: bound of the loss where the advantage is negative."""
    loss_agg_mode: LossAggMode = "token-mean"
    """How token losses become one number: by a mean over the batch's tokens, or over each sequence
    first."""
    entropy_coeff: float = 0.0
    """Weight of the entropy bonus."""
    use_kl_loss: bool = False
    """Add KL(actor, reference) to the loss instead of to the reward."""
    kl_loss_coef: NonNegativeFloat = 0.001
    """Weight of that KL term."""
    kl_loss_type: KlType = "low_var_kl"
    """Estimator of that KL, see ``algorithm.kl_penalty``."""

    def _misfits(self) -> Iterator[str]:
        yield from super()._misfits()
        if (self.clip_ratio_low or self.clip_ratio) > 1:
            key = "clip_ratio_low" if self.clip_ratio_low else "clip_ratio"
            yield (
                f"{key}={self.clip_ratio_low or self.clip_ratio} is above 1, and a ratio of "
                "probabilities is never below 0: set clip_ratio_low=1 for no lower bound"
            )


class ValKwargs(Section):
    """Sampling of the validation responses."""

    n: NonNegativeInt = 4
    """Sampled responses per prompt for mean@n, in validation and in the study's test; 0: none."""
    temperature: PositiveFloat = 1.0
    """Temperature of the sampled responses."""
    do_sample: bool = True
    """False: validation during training generates the greedy response only."""


class EngineConfig(Section):
    """What the engines of rollout and judge have in common."""

    num_engines: PositiveInt = 1
    """Engines that share a step's work, each with ``num_gpus`` × ``tensor_model_parallel_size``
    GPUs and ``num_threads`` CPU threads. One engine gives all responses to a prompt. Samples and
    scores do not depend on the number of engines."""
    tensor_model_parallel_size: PositiveInt = 1
    """GPUs per engine, for a model larger than one; must stay 1 on the CPU."""
    num_threads: PositiveInt = 1
    """CPU threads of each engine process."""
    num_gpus: NonNegativeFloat = 0.0
    """GPUs reserved for each engine process."""
    node: Node = None
    dtype: Dtype = "float32"
    """Precision of the engine's weights and of its KV cache."""
    kv_cache_memory_mb: PositiveInt = 256
    """Size of the KV cache on the CPU."""
    enforce_eager: bool = True
    """Skip CUDA graphs: faster start, slower steps; no effect on the CPU."""
    max_num_seqs: PositiveInt = 256
    """Sequences that the engine works on at once."""
    enable_chunked_prefill: bool = False
    """Split long prompts among vLLM's steps; not on the CPU, where they lose their seed."""
    sleep: bool = False
    """Free GPU memory while others use the device that the engine shares; off on the CPU and on
    devices of its own."""
    engine_kwargs: dict[str, Any] = {}
    """Further arguments of vLLM's ``EngineArgs``, by its names; only with vLLM."""


class RolloutConfig(EngineConfig):
    """The engine that generates the responses."""

    name: Literal["vllm", "hf"] = "vllm"
    """``vllm``, or ``hf``: a plain loop over transformers, for tests and models vLLM lacks."""
    n: PositiveInt = 8
    """Responses per prompt (the group of GRPO and RLOO)."""
    temperature: Temperature = 1.0
    """Sampling temperature, also that of the log-probs; vLLM has none below 0.01."""
    top_p: float = Field(default=1.0, gt=0, le=1)
    """Must stay 1: nucleus sampling would change the distribution that PPO takes ratios of."""
    top_k: int = Field(default=-1, ge=-1)
    """Must stay -1 (off), for the same reason."""
    ignore_eos: bool = False
    """Training responses go on past the end token up to ``data.max_response_length``: for measuring
    what lengths cost, not for learning."""
    max_model_len: PositiveInt | None = 2048
    """Longest prompt + response of the engine; null: what the model allows."""
    gpu_memory_utilization: float = Field(default=0.65, gt=0, le=1)
    """Share of GPU memory for the engine; lower it when updates run out of memory. Unused
    on the CPU."""
    enable_prefix_caching: bool = True
    """Compute the prompt of several responses once."""
    lora: Literal["merged", "adapter"] = "merged"
    """What the engine gets with ``model.lora_rank``: all weights with the adapter merged into
    them, or the adapter alone. ``adapter`` moves less, and lets the engine serve a judge of
    ``scoring.kind: reference``; on a CPU it generates about three times slower."""
    seed: int | None = None
    """Null: derived from ``trainer.seed``; each request has its own seed."""
    val_kwargs: ValKwargs = ValKwargs()
    """Sampling of the validation."""

    def _misfits(self) -> Iterator[str]:
        if self.top_p != 1.0 or self.top_k not in (-1, 0):
            yield (
                "top_p and top_k renormalise the sampling distribution, so the trainer's log-probs "
                "would not be those of the samples: set top_p=1.0 and top_k=-1"
            )


class RefConfig(Section):
    """The frozen copy of the starting policy, used for KL and for the alignment bonus."""

    colocated: bool = False
    """Keep it in the actor's processes, as in verl, sharded like the actor; the other keys here
    then have no effect. Always so with LoRA. False: in processes of its own."""
    max_token_len_per_gpu: PositiveInt = 16384
    """Token budget of one forward pass."""
    fsdp_config: FsdpConfig = FsdpConfig()
    """Processes, precision and devices."""
    node: Node = None


class ActorRolloutRefConfig(Section):
    """Actor, rollout engine and reference policy."""

    model: ModelConfig
    """The model and how to compute it."""
    actor: ActorConfig = ActorConfig()
    """The policy's update."""
    rollout: RolloutConfig = RolloutConfig()
    """The rollout engine."""
    ref: RefConfig = RefConfig()
    """The reference policy."""


class CriticConfig(TrainWorkerConfig):
    """The value model of GAE."""

    enable: bool | None = None
    """Null: on if and only if ``algorithm.adv_estimator`` is ``gae``."""
    optim: OptimConfig = OptimConfig(lr=1e-5)
    """Optimiser and learning rate."""
    cliprange_value: PositiveFloat = 0.5
    """Values may move this far from the old ones before the loss is clipped."""
    loss_agg_mode: LossAggMode = "token-mean"
    """As ``actor_rollout_ref.actor.loss_agg_mode``, for the value loss."""
