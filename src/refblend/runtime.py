"""What every refblend process needs before and during the import of torch and vLLM."""

import ctypes
import gc
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress

_FIXED = {
    # Busy-waiting OpenMP threads of one process starve the machine's other processes.
    "OMP_WAIT_POLICY": "PASSIVE",
    "KMP_BLOCKTIME": "0",
    # oneDNN caches compiled kernels by shape, 1,024 by default. vLLM requests one per number of
    # tokens and caches the recent ones itself: an engine would grow by 400 MiB over a long run.
    "ONEDNN_PRIMITIVE_CACHE_CAPACITY": "64",
    "TOKENIZERS_PARALLELISM": "false",
    # The engine runs inside its Ray actor: it starts in seconds, and weights are pushed in process.
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    # Of use for top-k and top-p only, yet imported by vLLM, which fails where it is missing.
    "VLLM_USE_FLASHINFER_SAMPLER": "0",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_DO_NOT_TRACK": "1",
    "VLLM_LOGGING_LEVEL": "ERROR",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "HF_HUB_DISABLE_PROGRESS_BARS": "1",
    "TRANSFORMERS_VERBOSITY": "error",
    "PYTHONHASHSEED": "0",
}


def process_environment(num_threads: int) -> dict[str, str]:
    """Variables for a worker process with ``num_threads`` CPU threads."""
    threads = str(num_threads)
    return _FIXED | {
        "OMP_NUM_THREADS": threads,
        "MKL_NUM_THREADS": threads,
        "OPENBLAS_NUM_THREADS": threads,
    }


def configure_process(num_threads: int | None = None) -> None:
    """Set the environment of this process; call it before torch is imported.

    Variables that the user has set win. ``num_threads`` null keeps the machine's default.
    """
    wanted = _FIXED if num_threads is None else process_environment(num_threads)
    for name, value in wanted.items():
        os.environ.setdefault(name, value)


def prepare_process(num_threads: int) -> None:
    """Give this process its share of the CPU, torch included."""
    configure_process(num_threads)
    import torch

    torch.set_num_threads(num_threads)


_M_TRIM_THRESHOLD, _M_TOP_PAD, _M_MMAP_MAX = -1, -2, -4  # glibc's malloc.h
_MOST = 2**31 - 1


def keep_freed_memory() -> None:
    """Let this process keep up to 2 GiB of freed memory for the tensors to come.

    By default glibc returns every large block to the kernel, which clears it page by page for the
    next tensor: a tenth of the time of a training step. Other allocators stay as they are.
    """
    with suppress(AttributeError):
        mallopt = ctypes.CDLL(None).mallopt
        for key, value in ((_M_MMAP_MAX, 0), (_M_TRIM_THRESHOLD, _MOST), (_M_TOP_PAD, 64 * 2**20)):
            mallopt(ctypes.c_int(key), ctypes.c_int(value))


def return_freed_memory() -> None:
    """Give what :func:`keep_freed_memory` has kept so far back to the kernel."""
    gc.collect()
    with suppress(AttributeError):
        ctypes.CDLL(None).malloc_trim(ctypes.c_size_t(0))


@contextmanager
def importing() -> Iterator[None]:
    """Import large libraries with garbage collection paused, and exclude them from it afterwards.

    Modules live as long as their process, but the collector would traverse their millions of
    objects while they are imported, and again whenever vLLM requests a full collection during its
    start: a third of the CPU time of an engine's start.
    """
    resting = not gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        if not resting:
            gc.enable()
