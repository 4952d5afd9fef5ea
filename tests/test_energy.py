import time
from unittest.mock import Mock

import pytest

from refblend.energy import EnergyMeter, carbon_intensity
from refblend.errors import ConfigError


def test_carbon_intensity() -> None:
    assert 0 < carbon_intensity("CHE") < carbon_intensity("POL")
    with pytest.raises(ConfigError, match="'XXX'"):
        EnergyMeter("XXX")


def test_meter_is_offline_quiet_and_leaves_no_files(tmp_path, monkeypatch, capfd) -> None:
    import requests

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("the energy meter must not use the network")

    monkeypatch.setattr(requests.Session, "request", refuse)
    monkeypatch.chdir(tmp_path)
    begun = time.monotonic()
    with EnergyMeter("CHE") as meter:
        assert time.monotonic() - begun < 1.0
        time.sleep(2)
    report = meter.report
    assert report is not None
    assert report["kwh"] > 0
    assert report["kg_co2e"] == pytest.approx(report["kwh"] * carbon_intensity("CHE") / 1000)
    assert report["estimated"]
    assert "codecarbon" in report["method"]
    assert "CPU" in report["method"]
    assert report["country"] == "CHE"
    assert list(tmp_path.iterdir()) == []
    assert capfd.readouterr() == ("", "")


def test_a_machine_that_codecarbon_cannot_read_only_lacks_the_report(monkeypatch, caplog) -> None:
    """codecarbon swallows its own errors, and then has no data."""

    def fail(*_: object) -> None:
        raise RuntimeError("no such hardware")

    tracker = "codecarbon.core.resource_tracker.ResourceTracker"
    monkeypatch.setattr(f"{tracker}.set_CPU_GPU_ram_tracking", fail)
    with EnergyMeter("CHE") as meter:
        pass
    assert meter.report is None
    assert "codecarbon could not measure" in caplog.text


def test_only_the_gpus_of_the_run_are_read(monkeypatch) -> None:
    """Without names codecarbon would add up all GPUs of the machine."""
    tracker = Mock()
    monkeypatch.setattr("codecarbon.OfflineEmissionsTracker", tracker)
    EnergyMeter("CHE", ["3", "GPU-ab"]).__enter__()
    assert tracker.call_args.kwargs["gpu_ids"] == ["3", "GPU-ab"]
