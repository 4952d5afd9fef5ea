import os
import subprocess
import sys

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from refblend.seeding import derive_generator, derive_seed

parts = st.lists(st.one_of(st.integers(), st.text(max_size=5)), min_size=1, max_size=4)


@given(parts)
def test_range_and_stability(values: list[int | str]) -> None:
    seed = derive_seed(*values)
    assert 0 <= seed < 2**63
    assert seed == derive_seed(*values)


def test_known_value_never_changes() -> None:
    # Recorded runs depend on it: a change here changes every sample of every study.
    assert derive_seed(1, "rollout", 3, 17, 0) == 7767288889599352121


def test_neighbours_and_types_differ() -> None:
    seeds = {derive_seed(1, "rollout", step, sample) for step in range(50) for sample in range(50)}
    assert len(seeds) == 2500
    assert derive_seed(1) != derive_seed("1")
    assert derive_seed("ab", "c") != derive_seed("a", "bc")


def test_independent_of_hash_salt() -> None:
    code = "from refblend.seeding import derive_seed; print(derive_seed('a', 2))"
    for salt in ("0", "1"):
        done = subprocess.run(
            [sys.executable, "-c", code],
            env=os.environ | {"PYTHONHASHSEED": salt},
            capture_output=True,
            text=True,
            check=True,
        )
        assert int(done.stdout) == derive_seed("a", 2)


def test_generator() -> None:
    first, again = derive_generator(1, "data"), derive_generator(1, "data")
    assert np.array_equal(first.integers(0, 100, 20), again.integers(0, 100, 20))
    other = derive_generator(2, "data").integers(0, 2**60, 20)
    assert not np.array_equal(derive_generator(1, "data").integers(0, 2**60, 20), other)
