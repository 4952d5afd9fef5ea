"""A scale on GPUs from data to report on two cores: ``make rehearse``, ``make rehearse-short``.

The scale's own files, every arm and experiment, through Snakemake, in a folder of its own. The
models are stand-ins of Qwen2.5's architecture with random weights, and their tokenizer is trained
on the rows: those of the real GSM8K where ``REFBLEND_GSM8K_DIR`` names a folder with them, made in
its format otherwise. Besides sizes (``params/rehearsal``) only this differs: the whole form samples
and judges with the HF engine, which starts sooner than vLLM; E keeps vLLM for its rollouts.
"""

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pandas as pd
import yaml

from refblend.config.loading import merge, read_yaml
from refblend.embedded.architecture import qwen_tokenizer, write_stand_in
from refblend.errors import DataError, RefblendError, StudyError
from refblend.files import atomic_path

ROOT = Path(__file__).resolve().parents[1]
MODELS = {
    "gpu": ("Qwen2.5-0.5B-Instruct", "Qwen2.5-1.5B-Instruct", "judge_weak", "judge_strong"),
    "gpu7b": ("Qwen2.5-7B-Instruct",),
}
"""Each scale's own, and those that its arms name."""
TRAIN_ROWS, TEST_ROWS = 640, 16
"""Of the source; the converter holds 512 + 64 of the train rows out."""

NOT_MEASURED = "m1/verdicts"
"""The table that the scales may leave empty: M1 declares no contrasts."""


def prepare(folder: Path, rows: Sequence[Mapping[str, str]], scale: str, short: bool) -> None:
    """Everything that a user of a scale on GPUs brings along: parameters, rows and models.

    ``rows`` have GSM8K's ``question`` and ``answer``, train rows first.
    """
    _parameters(folder, scale, short)
    source = folder / "source"
    source.mkdir(exist_ok=True)
    for name, part in (("train", rows[:TRAIN_ROWS]), ("test", rows[TRAIN_ROWS:])):
        with atomic_path(source / f"{name}.jsonl") as temporary:
            temporary.write_text("".join(json.dumps(dict(row)) + "\n" for row in part))
    models = folder / "models" / scale
    tokenizer = qwen_tokenizer(f"{row['question']}\n{row['answer']}" for row in rows)
    for seed, name in enumerate(MODELS[scale]):
        if not (models / name / "model.safetensors").exists():
            write_stand_in(models / name, tokenizer, seed)


def _parameters(folder: Path, scale: str, short: bool) -> None:
    params = folder / "params"
    shutil.copytree(ROOT / "params", params, dirs_exist_ok=True)
    for name in ("src", "workflow"):
        link = folder / name
        link.unlink(missing_ok=True)
        link.symlink_to(ROOT / name)
    over = read_yaml(ROOT / "params" / "rehearsal" / "study.yaml")
    for name, changes in over.items():
        path = params / "study" / f"{name}.yaml"
        path.write_text(yaml.safe_dump(merge(read_yaml(path), changes), sort_keys=False))
    (params / "seeds.yaml").write_text(f"{scale}: 2\n")
    files = ["scale", *(["gpu"] if scale == "gpu" else []), "short" if short else "whole"]
    path = params / "scale" / f"{scale}.yaml"
    sized = read_yaml(path)
    for name in files:
        sized = merge(sized, read_yaml(ROOT / "params" / "rehearsal" / f"{name}.yaml"))
    path.write_text(yaml.safe_dump(sized, sort_keys=False))


def source_rows() -> list[dict[str, str]]:
    """Rows of the real GSM8K, or made in its format.

    Raises:
        DataError: ``REFBLEND_GSM8K_DIR`` names no such files.
    """
    sizes = {"train": TRAIN_ROWS, "test": TEST_ROWS}
    named = os.environ.get("REFBLEND_GSM8K_DIR")
    if not named:
        return [_made(number) for number in range(sum(sizes.values()))]
    rows: list[dict[str, str]] = []
    for split, size in sizes.items():
        path = Path(named) / f"{split}.jsonl"
        if not path.is_file():
            raise DataError(f"{path} does not exist", "Correct REFBLEND_GSM8K_DIR.")
        lines = path.read_text(encoding="utf-8").split("\n")[:size]
        rows += [json.loads(line) for line in lines]
    return rows


def _made(number: int) -> dict[str, str]:
    boxes, pears = number // 30 + 2, number % 30 + 2
    packed, left = boxes * pears, boxes * pears - 1
    return {
        "question": f"Nora packs {boxes} boxes with {pears} pears each, eats one pear and adds "
        "two. How many pears are in the boxes?",
        "answer": f"She packs {boxes}*{pears}=<<{boxes}*{pears}={packed}>>{packed} pears.\n"
        f"Then {packed}-1=<<{packed}-1={left}>>{left} are left.\n"
        f"At last there are {left}+2=<<{left}+2={left + 2}>>{left + 2}.\n#### {left + 2}",
    }


def shortcomings(results: Path, milestones: Sequence[str]) -> Iterator[str]:
    """What a complete study would not have: empty tables, missing figures, checks not run."""
    for milestone in milestones:
        folder = results / milestone
        files = ["report.md", "checks.json"]
        yield from (f"{folder / name} is missing" for name in files if not (folder / name).exists())
        for path in sorted(folder.glob("tables/*.csv")):
            if f"{milestone}/{path.stem}" != NOT_MEASURED and pd.read_csv(path).empty:
                yield f"{path} has no rows"
        if (report := folder / "report.md").exists():
            shown = re.findall(r"\]\(([^)#:]+\.(?:svg|png))\)", report.read_text())
            yield from (f"{report}: {n} is missing" for n in shown if not (folder / n).exists())
            if not shown:
                yield f"{report} shows no figure"
            if "No data." in report.read_text():
                yield f"{report} shows a table without rows"
            if re.search(r"^- `.*, seed \d+: ", report.read_text(), re.MULTILINE):
                yield f"{report} has a run that has not finished"


def snakemake(folder: Path, scale: str, targets: Sequence[str], *options: str) -> None:
    """Call the workflow of a scale in the rehearsal's folder.

    Raises:
        StudyError: it failed; its own messages are above.
    """
    command = [sys.executable, "-m", "snakemake", *targets, *options]
    command += ["--snakefile", str(ROOT / "Snakefile"), "--directory", str(folder)]
    command += ["--config", f"scale={scale}", "gsm8k=source"]
    status = subprocess.run(command, cwd=folder, check=False).returncode
    if status:
        raise StudyError(f"snakemake ended with status {status}", f"See its logs in {folder}/logs.")


def main(arguments: Sequence[str] | None = None) -> None:
    """Prepare, run, and refuse a study that is not complete."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("folder", type=Path, help="where everything is written")
    parser.add_argument("--scale", choices=MODELS, default="gpu", help="which one is rehearsed")
    parser.add_argument("--short", action="store_true", help="M1 alone: two arms, two steps")
    parser.add_argument("--dry-run", action="store_true", help="prepare, and list the jobs only")
    options = parser.parse_args(arguments)
    folder = options.folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    milestones = ["m1"] if options.short else ["m1", "m2", "m3"]
    prepare(folder, source_rows(), options.scale, options.short)
    if options.dry_run:
        snakemake(folder, options.scale, milestones, "--dry-run", "--quiet")
        return
    # E and F are targets of their own at scale gpu.
    apart = "EF" if options.scale == "gpu" and not options.short else ""
    own = [f"runs/gpu/_blocks/{name}/1.done" for name in apart]
    snakemake(folder, options.scale, [*milestones, *own])
    if found := list(shortcomings(folder / "results" / options.scale, milestones)):
        raise StudyError("; ".join(found), "The scale would end like this, too: fix it first.")
    print(f"Scale {options.scale} is whole: {', '.join(milestones)} in {folder}/results")


if __name__ == "__main__":
    try:
        main()
    except RefblendError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)
