"""Seeds: every random stream is derived from the run's seed by a stable hash of its name.

Python's ``hash`` is salted per process, and ``seed + i`` makes runs with neighbouring seeds share
streams, so neither is used. The same parts give the same seed on every machine and version.
"""

import hashlib

import numpy as np


def derive_seed(*parts: int | str) -> int:
    """A seed in [0, 2**63) from e.g. ``(run_seed, "rollout", step, prompt_id, sample_index)``."""
    text = "\x1f".join(f"{type(part).__name__}:{part}" for part in parts)
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1


def derive_generator(*parts: int | str) -> np.random.Generator:
    """A NumPy generator seeded with :func:`derive_seed`."""
    return np.random.default_rng(derive_seed(*parts))
