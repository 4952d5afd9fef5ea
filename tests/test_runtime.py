"""The environment of a process and the collector during imports."""

import gc
import os

import pytest

from refblend import runtime


def test_what_the_user_set_wins(monkeypatch) -> None:
    monkeypatch.setenv("OMP_WAIT_POLICY", "ACTIVE")
    monkeypatch.delenv("ONEDNN_PRIMITIVE_CACHE_CAPACITY", raising=False)
    runtime.configure_process()
    assert os.environ["OMP_WAIT_POLICY"] == "ACTIVE"
    assert os.environ["ONEDNN_PRIMITIVE_CACHE_CAPACITY"] == "64"


def test_imports_are_spared_by_the_collector() -> None:
    kept = gc.get_freeze_count()
    with runtime.importing():
        assert not gc.isenabled()
        made = [[] for _ in range(1000)]
    assert gc.isenabled()
    assert gc.get_freeze_count() >= kept + len(made)
    gc.unfreeze()


def test_the_collector_stays_as_it_was() -> None:
    gc.disable()
    try:
        with pytest.raises(ImportError), runtime.importing():
            raise ImportError
        assert not gc.isenabled()
    finally:
        gc.enable()
        gc.unfreeze()
