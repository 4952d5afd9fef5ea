"""Train `off` on candidate beds of scale cpu and measure what the study needs of its bed.

    python scripts/calibrate_bed.py params/calibration/cpu.yaml --out TABLE.csv --figure FIGURE.svg

The file names candidates: `train` has dotted overrides of a run, `recipe` those of
params/embedded/cpu.yaml, with which data and warm start are made anew; else they are those of
`snakemake prepare --config scale=cpu`. Runs that are finished are not trained again.
A bed is asked for: an entropy that passes through 0.2 to 0.8 of tau, a weight that moves over half
of its range, a gain of 0.2 and an accuracy that still rises in the last third.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
from functools import reduce
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import yaml

from refblend.config.loading import merge, nest
from refblend.trainer.tracking import read_metrics

SCALE = Path("params/scale/cpu.yaml")
RECIPE = Path("params/embedded/cpu.yaml")
ENTROPY = "actor/ref_quality/avg_entropy"  # of which the weight is a function
ACCURACY = "val-core/refblend/arithmetic/acc/mean@1"


def refblend(*arguments: str | Path) -> None:
    """Run the command line; its errors end the script."""
    subprocess.run(
        [str(Path(sys.executable).with_name("refblend")), *map(str, arguments)], check=True
    )


def make_bed(name: str, bed: dict[str, Any], work: Path) -> list[str]:
    """Data and warm start of a candidate; the overrides of its runs.

    Without overrides of the recipe they are the workflow's: a warm start differs with the number of
    threads that made it, and the study trains on that one. What a folder holds is kept, so one that
    another recipe made ends the script.
    """
    data, actor = Path("data/cpu"), Path("models/cpu/actor")
    if values := bed.get("recipe"):
        folder = work / name
        recipe, data, actor = folder / "recipe.yaml", folder / "data", folder / "actor"
        folder.mkdir(parents=True, exist_ok=True)
        changes = [nest(key.split("."), value) for key, value in values.items()]
        values = reduce(merge, changes, yaml.safe_load(RECIPE.read_text()))
        if recipe.is_file() and yaml.safe_load(recipe.read_text()) != values:
            sys.exit(
                f"{recipe}: candidate {name} has another recipe now, and what the folder holds was "
                f"made by this one. Remove {folder}, or give another --work."
            )
        recipe.write_text(yaml.safe_dump(values, sort_keys=False))
        if not (data / "train.parquet").is_file():
            refblend("data", "prepare", "--recipe", recipe, "--out", data)
        if not (actor / "model.safetensors").is_file():
            tokenizer, clean = Path("models/cpu/tokenizer"), folder / "actor_clean"
            if not clean.exists():  # which is trained anew if its recipe is another one
                shutil.copytree("models/cpu/actor_clean", clean)
            refblend(
                *("models", "actor", "--recipe", recipe, "--tokenizer", tokenizer),
                *("--out", actor, "--clean-out", clean),
            )
    return [
        f"data.{key}_files=[{data / file}.parquet]"
        for key, file in {"train": "train", "val": "validation", "sanity": "sanity"}.items()
    ] + [f"actor_rollout_ref.model.path={actor}"]


def train(name: str, bed: dict[str, Any], seed: int, work: Path) -> pd.DataFrame:
    """The metrics of a run of a candidate, by step; it is trained unless it is finished."""
    run = work / name / f"seed_{seed}"
    overrides = {
        "algorithm.ref_quality_score.enable": False,
        "trainer.save_freq": 0,
        **bed.get("train", {}),
    }
    refblend(
        *("train", "--config", "params/ppo.yaml", "--config", SCALE),
        *make_bed(name, bed, work),
        *(f"{key}={json.dumps(value)}" for key, value in overrides.items()),
        *(f"trainer.seed={seed}", f"trainer.default_local_dir={run}"),
    )
    return read_metrics(run / "metrics.jsonl").set_index("step")


def measure(metrics: pd.DataFrame, tau: float) -> dict[str, float]:
    """What the criteria ask of a run."""
    entropy, accuracy = metrics[ENTROPY].dropna(), metrics[ACCURACY].dropna()
    weight = np.clip(1 - entropy / tau, 0, 1)
    last = accuracy.index[-1]
    return {
        "tau": tau,
        "entropy first": entropy.iloc[0],
        "entropy last": entropy.iloc[-1],
        "weight from": weight.min(),
        "weight to": weight.max(),
        "accuracy first": accuracy.iloc[0],
        "accuracy at 1/3": float(np.interp(last / 3, accuracy.index, accuracy)),
        "accuracy at 2/3": float(np.interp(2 * last / 3, accuracy.index, accuracy)),
        "accuracy last": accuracy.iloc[-1],
        "training reward last": metrics["critic/score/mean"].dropna().iloc[-3:].mean(),
        "length first": metrics["response_length/mean"].dropna().iloc[0],
        "length last": metrics["response_length/mean"].dropna().iloc[-1],
        "truncated": metrics["response_length/clip_ratio"].mean(),
        "step seconds": metrics["timing_s/step"].median(),
    }


def draw(runs: dict[str, list[pd.DataFrame]], tau: dict[str, float], path: Path) -> None:
    """Accuracy, entropy and the spec's weight over the steps, a colour per bed."""
    figure, axes = plt.subplots(1, 3, figsize=(11, 3.4), layout="constrained")
    for number, (name, seeds) in enumerate(runs.items()):
        for metrics in seeds:
            entropy = metrics[ENTROPY].dropna() / tau[name]
            curves = [metrics[ACCURACY].dropna(), entropy, np.clip(1 - entropy, 0, 1)]
            for axis, curve in zip(axes, curves, strict=True):
                label = name if metrics is seeds[0] else None
                axis.plot(curve.index, curve, color=f"C{number}", label=label, linewidth=1.2)
    titles = ("Greedy validation accuracy", "Entropy / τ", "Weight / max_weight (linear)")
    for axis, title in zip(axes, titles, strict=True):
        axis.set(title=title, xlabel="step", ylim=(0, None))
    axes[1].axhspan(0.2, 0.8, color="0.92", zorder=0)
    axes[0].legend(fontsize=8)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, metadata={"Date": None})


def main() -> None:
    """Train, measure, write."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("candidates", type=Path)
    parser.add_argument("--only", nargs="*", help="names of candidates; default: all")
    parser.add_argument("--work", type=Path, default=Path("runs/calibration"))
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--figure", type=Path)
    options = parser.parse_args()
    os.environ |= {"OMP_WAIT_POLICY": "PASSIVE", "OMP_NUM_THREADS": "1"}  # as the workflow's jobs
    beds = yaml.safe_load(options.candidates.read_text())["beds"]
    beds = {name: beds[name] for name in options.only or beds}
    runs = {
        name: [train(name, bed, seed, options.work) for seed in bed.get("seeds", [1])]
        for name, bed in beds.items()
    }
    tau = {name: float(bed.get("tau", 1.0)) for name, bed in beds.items()}
    rows = [
        {"bed": name, "seed": seed, **measure(metrics, tau[name])}
        for name, seeds in runs.items()
        for seed, metrics in zip(beds[name].get("seeds", [1]), seeds, strict=True)
    ]
    table = pd.DataFrame(rows)
    options.out.parent.mkdir(parents=True, exist_ok=True)
    table.to_csv(options.out, index=False, float_format="%.4g")
    print(table.T.to_string(float_format=lambda value: f"{value:.3f}"))
    if options.figure:
        draw(runs, tau, options.figure)


if __name__ == "__main__":
    main()
