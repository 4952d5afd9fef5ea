"""A scale's tokenizer, actor and judges in one file, for studies that move or grow.

Models trained anew are the same only on a processor of the same kind, and runs compare only when
they started from the same ones. A record in the file says what they were made from.
"""

import filecmp
import io
import json
import shutil
import tarfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from refblend.documents import MalformedError, flatten
from refblend.embedded.recipe import STRENGTHS, EmbeddedConfig
from refblend.errors import ModelError
from refblend.files import OPTIMIZER_FILE, atomic_path, read_object, unpacked
from refblend.numerics import versions
from refblend.provenance import circumstances

MODELS = ("actor", "actor_clean", *(f"judge_{strength}" for strength in STRENGTHS))
PARTS = ("tokenizer", "judge_pairs", *MODELS)
"""Folders of ``models/<scale>`` that are packed; measurements of the models are made where it is
unpacked."""
PURPOSES = ("tokenizer", "actor.train", "judge.pairs", "judge.prompt", "judge.train")
RECORD_NAME = "packed.json"


def pack_models(folder: Path, recipe: EmbeddedConfig, target: Path) -> None:
    """Pack ``models/<scale>`` into a .tar.xz file; ModelError if one of the models is missing."""
    missing = [name for name in PARTS if not (folder / name).is_dir()]
    if missing:
        raise ModelError(f"{folder} lacks {', '.join(missing)}", "Call `snakemake prepare` first.")
    made = {"recipe": _what_makes_models(recipe), "numerics": versions(*PURPOSES)}
    record = json.dumps(made | circumstances(), indent=2, sort_keys=True).encode()
    described = tarfile.TarInfo(RECORD_NAME)
    described.size = len(record)
    with atomic_path(target) as path, tarfile.open(path, "w:xz") as archive:
        archive.addfile(described, io.BytesIO(record))
        for name in PARTS:
            archive.add(folder / name, name, filter=_without_optimizer)


def unpack_models(source: Path, recipe: EmbeddedConfig, folder: Path) -> dict[str, Any]:
    """Put packed models into ``folder`` in place of ours that are there; returns their record.

    ModelError, before anything is unpacked: no pack of this recipe, or other files in the way,
    such as a tokenizer or pairs that differ.
    """
    with unpacked(source, folder, "refblend models pack", ModelError, _as_new) as staged:
        if not (staged / RECORD_NAME).is_file():
            raise ModelError(
                f"{source} holds no models",
                "Give a file of `refblend models pack`. Unpack runs with `tar`.",
            )
        record = read_object(staged / RECORD_NAME)
        if not all(isinstance(record.get(key), dict) for key in ("recipe", "hardware")):
            raise MalformedError(f"{RECORD_NAME} does not say what made the models")
        _check_recipe(source, record["recipe"], recipe)
        absent = [name for name in PARTS if not (staged / name).is_dir()]
        if absent:
            raise MalformedError(f"it lacks {', '.join(absent)}")
        for name in PARTS:
            if (folder / name).is_dir():
                found = filecmp.dircmp(folder / name, staged / name, ignore=[], hide=[])
                if set(found.left_list) - set(found.same_files):
                    check_place(folder / name)
        for name in PARTS:
            shutil.rmtree(folder / name, ignore_errors=True)
            (staged / name).rename(folder / name)
    return record


def check_place(path: Path) -> None:
    """Refuse (ModelError) to replace a directory that has files, but no model of ours."""
    if path.is_dir() and any(path.iterdir()) and not (path / "training.json").is_file():
        raise ModelError(f"{path} holds other files", "Move or delete them first.")


def _without_optimizer(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
    """Only the next strength's training needs it, and all strengths are packed."""
    return None if Path(member.name).name == OPTIMIZER_FILE else member


def _what_makes_models(recipe: EmbeddedConfig) -> dict[str, Any]:
    """The recipe without the sizes of measurements, as plain values."""
    return recipe.model_dump(mode="json", exclude={"evaluation"})


def _as_new(member: tarfile.TarInfo, path: str) -> tarfile.TarInfo | None:
    """Snakemake takes files that are older than what they are made from for stale."""
    safe = tarfile.data_filter(member, path)
    return safe and safe.replace(mtime=time.time())


def _check_recipe(source: Path, packed: Mapping[str, Any], recipe: EmbeddedConfig) -> None:
    old, new = flatten(packed), flatten(_what_makes_models(recipe))
    differing = [
        f"{key} {json.dumps(old.get(key))}, not {json.dumps(new.get(key))}"
        for key in sorted(old.keys() | new.keys())
        if old.get(key) != new.get(key)
    ]
    if differing:
        raise ModelError(
            f"{source} was made with {'; '.join(differing)}",
            "Restore the recipe, or train the models anew: give their scale null under `models` "
            "in params/workflow.yaml.",
        )
