"""What is fuzzed is what stands in files, not that it survives a loss of power."""

from collections.abc import Iterator
from unittest import mock

import pytest


@pytest.fixture(scope="module", autouse=True)
def no_fsync() -> Iterator[None]:
    with mock.patch("os.fsync"):
        yield
