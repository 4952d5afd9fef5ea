"""Energy of a run, estimated by codecarbon without any network access.

On most machines the result is an *estimate*. Where the kernel exposes RAPL counters, the CPU's
energy is read from them; elsewhere (containers, virtual machines) it is the CPU model's design
power times the load of this process and its children. Memory is a constant per module. GPUs are
read through NVML or AMD SMI: the run's own, but all visible ones in a Ray cluster that was there
before. The report's ``method`` names what was used. The machine's idle power is not included.
"""

import json
import logging
import os
import threading
import time
from collections.abc import Sequence
from importlib import resources
from typing import Any

from refblend.errors import ConfigError

logger = logging.getLogger(__name__)

_SECONDS_BETWEEN_READINGS = 15


class EnergyMeter:
    """Measures the block that it manages; :attr:`report` is there afterwards.

    Detecting the hardware takes codecarbon 1.4 s on two cores; it happens in a separate thread, so
    that the block begins at once. ``country``, an ISO 3166 alpha-3 code, sets the
    carbon intensity; ConfigError for one that codecarbon does not know. ``gpus`` are the run's, as
    ``CUDA_VISIBLE_DEVICES`` names them; without any, all that are visible are read.
    """

    report: dict[str, Any] | None = None
    """Energies in kWh, emissions in kg CO2-equivalent, and how they were estimated; null where
    codecarbon failed."""

    def __init__(self, country: str, gpus: Sequence[str] = ()) -> None:
        self.country, self._gpus = country, list(gpus)
        self._intensity = carbon_intensity(country)

    def __enter__(self) -> "EnergyMeter":
        logging.getLogger("codecarbon").setLevel(logging.CRITICAL)
        from codecarbon import OfflineEmissionsTracker

        for name in ("CODECARBON_SAVE_TO_API", "CODECARBON_EMISSIONS_ENDPOINT"):
            os.environ.pop(name, None)
        self._begun = time.monotonic()
        self._tracker: Any = OfflineEmissionsTracker(
            country_iso_code=self.country,
            force_carbon_intensity_g_co2e_kwh=self._intensity,
            gpu_ids=self._gpus or None,
            tracking_mode="process",
            measure_power_secs=_SECONDS_BETWEEN_READINGS,
            save_to_file=False,
            save_to_api=False,
            save_to_logger=False,
            save_to_prometheus=False,
            save_to_logfire=False,
            allow_multiple_runs=True,
            log_level="critical",
        )
        self._thread = threading.Thread(target=self._tracker.start, name="energy", daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._thread.join()
        self._tracker.stop()
        # codecarbon logs its own failures and goes on; then there is nothing to report.
        data = getattr(self._tracker, "final_emissions_data", None)
        if data is None:
            logger.warning("codecarbon could not measure the energy of this run")
            return
        # codecarbon reports how it measures each part only here, e.g. "CPU(Cpu Load)".
        parts = getattr(self._tracker, "_conf", {}).get("hardware", ["unknown"])
        self.report = {
            "kwh": data.energy_consumed,
            "kg_co2e": data.emissions,
            "cpu_kwh": data.cpu_energy,
            "gpu_kwh": data.gpu_energy,
            "ram_kwh": data.ram_energy,
            "seconds": time.monotonic() - self._begun,
            "country": self.country,
            "method": f"codecarbon {data.codecarbon_version} offline, process tree: "
            f"{', '.join(map(str, parts))}; {self._intensity:g} g CO2e/kWh",
            "estimated": True,
        }


def carbon_intensity(country: str) -> float:
    """Grams of CO2-equivalent per kWh of a country, by codecarbon's tables, or ConfigError."""
    tables = resources.files("codecarbon") / "data" / "private_infra"
    mix = json.loads((tables / "global_energy_mix.json").read_text())
    if country not in mix or mix[country].get("carbon_intensity") is None:
        raise ConfigError(
            f"the energy country {country!r} is not known",
            "Use an ISO 3166 alpha-3 code such as CHE or USA.",
        )
    return float(mix[country]["carbon_intensity"])
