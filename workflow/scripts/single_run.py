"""Train one run of ``params/ppo.yaml`` with a scale's file: ``single_run.py SCALE METRICS``.

The run lies in a folder named by its configuration, so that another value starts another run and
the same one resumes. Data and models must be there (`snakemake prepare`). METRICS gets a few
numbers of its end.
"""

import subprocess
import sys
from pathlib import Path

from refblend.config.loading import load_config
from refblend.errors import RefblendError
from refblend.files import read_object, write_json
from refblend.study.design.grid import config_files, configuration_digest
from refblend.trainer.console import validation_accuracy

BIN = Path(sys.executable).parent


def train(scale: str) -> Path:
    """Train; returns the run's directory."""
    files = config_files(scale)
    config = load_config(files, ["trainer.seed=1"])
    run = Path("runs", scale, "single", configuration_digest(config))
    named = [word for file in files for word in ("--config", file)]
    keys = ["trainer.seed=1", f"trainer.default_local_dir={run}"]
    subprocess.run([BIN / "refblend", "train", *named, *keys, "--overwrite"], check=True)
    return run


def main(scale: str, metrics: str) -> None:
    """Train, and write the number of steps and the last greedy validation accuracy."""
    summary = read_object(train(scale) / "summary.json")
    last = {name: values["last"] for name, values in summary["validation"].items()}
    write_json(metrics, {"steps": summary["steps"], "accuracy": validation_accuracy(last)})


if __name__ == "__main__":
    try:
        main(*sys.argv[1:])
    except subprocess.CalledProcessError as error:
        sys.exit(error.returncode)
    except RefblendError as error:
        sys.exit(f"error: {error}")
