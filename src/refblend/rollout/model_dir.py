"""What a model's directory holds, read and checked without loading the model."""

import re
from math import prod
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open

from refblend.data.tokenizer import load_tokenizer
from refblend.documents import show
from refblend.errors import ModelError
from refblend.files import how_to_get, read_record

_HUB_ID = re.compile(r"[\w-][\w.-]*/[\w.-]+")
TOKENIZER_FILES = ("tokenizer.json", "tokenizer.model", "vocab.json", "vocab.txt", "spiece.model")
"""One of these is in every model directory with a tokenizer."""


def check_model_dir(path: str, key: str) -> Path:
    """The directory that ``key`` names; ModelError without config.json or safetensors weights."""
    directory = Path(path)
    if not directory.is_dir():
        remedy = "Give a local model directory."
        if _HUB_ID.fullmatch(path) and not directory.parent.exists():
            local = f"models/{directory.name}"
            remedy = (
                "If it names a model of the Hugging Face hub, download it with "
                f"`hf download {path} --local-dir {local}` and give {local}."
            )
        remedy = how_to_get(directory, remedy)
        raise ModelError(f"{key}: {directory} is not a directory", remedy)
    if not (directory / "config.json").is_file():
        raise ModelError(
            f"{key}: {directory} has no config.json", "Give a directory in Hugging Face format."
        )
    if not any(directory.glob("*.safetensors")):
        raise ModelError(
            f"{key}: {directory} holds no weights (*.safetensors)",
            "Convert the weights to safetensors or fetch the complete model.",
        )
    return directory


def check_model(path: tuple[str, str], length: tuple[str, int | None]) -> None:
    """Refuse (ModelError) a model without weights or tokenizer, or too short for a wanted length.

    Both arguments are a configuration key and its value; a length of None is the model's own. Only
    the headers of the weights are read: they tell of a truncated file, too.
    """
    directory = check_model_dir(path[1], path[0])
    count_parameters(directory, path[0])
    # transformers makes an empty tokenizer where these files are missing.
    if not any((directory / name).is_file() for name in TOKENIZER_FILES):
        raise ModelError(
            f"{path[0]}: {directory} holds no tokenizer", "Add the files of the model's tokenizer."
        )
    check_length(directory, *length)


def check_length(directory: Path, key: str, wanted: int | None) -> None:
    """Refuse (ModelError) a length beyond a model's positions; None is the model's own."""
    positions = positions_of(directory)
    if wanted and positions and wanted > positions and not is_rescaled(directory):
        raise ModelError(
            f"{key}={wanted} is beyond the {positions} positions of {directory}",
            f"Set it to {positions} or less, or to null for the model's own limit.",
        )


def count_parameters(model_dir: Path, key: str) -> int:
    """Parameters in a directory's safetensors files, of headers alone; ModelError if truncated."""
    total = 0
    for path in sorted(model_dir.glob("*.safetensors")):
        try:
            with safe_open(path, framework="numpy") as file:
                for name in file.keys():  # noqa: SIM118 - not a mapping
                    total += prod(file.get_slice(name).get_shape())
        except (OSError, SafetensorError) as error:
            raise ModelError(
                f"{key}: {path} cannot be read as safetensors, it may be truncated ({error})",
                "Copy or download the file again, or train the model again.",
            ) from None
    return total


def model_record(path: Path) -> dict[str, Any]:
    """A JSON object of a model directory; ModelError if it cannot be read."""
    return read_record(path, ModelError, "Fetch or save the model again.")


def positions_of(directory: Path) -> int | None:
    """``max_position_embeddings`` of a model, None where unset; ModelError for anything else."""
    positions = model_record(directory / "config.json").get("max_position_embeddings")
    if positions is None or (type(positions) is int and positions > 0):
        return positions
    raise ModelError(
        f"{directory / 'config.json'}: max_position_embeddings is {show(positions)}",
        "Give the number of positions, or fetch the model again.",
    )


def is_rescaled(directory: Path) -> bool:
    """Whether a model's rotary positions reach beyond ``max_position_embeddings`` (YaRN and others;
    older configurations call the kind ``type``); ModelError for anything but an object."""
    config = model_record(directory / "config.json")
    scaling = config.get("rope_scaling") or config.get("rope_parameters") or {}
    if not isinstance(scaling, dict):
        raise ModelError(
            f"{directory / 'config.json'}: rope_scaling is {show(scaling)}",
            "Give an object or null, or fetch the model again.",
        )
    return scaling.get("rope_type", scaling.get("type", "default")) != "default"


def stop_token_ids(directory: Path) -> frozenset[int]:
    """Tokens that end an answer: those of the generation and model configurations and the
    tokenizer's own. Chat models often name several, each in another file.
    """
    found: set[int] = set()
    for name in ("generation_config.json", "config.json"):
        if (directory / name).is_file():
            ids = model_record(directory / name).get("eos_token_id")
            listed = ids if isinstance(ids, list) else [] if ids is None else [ids]
            if any(type(token) is not int for token in listed):
                raise ModelError(
                    f"{directory / name}: eos_token_id is {show(ids)}",
                    "Give the number of a token or a list of such numbers.",
                )
            found.update(listed)
    if (directory / "tokenizer_config.json").is_file():
        own = load_tokenizer(directory).eos_token_id
        found.update([] if own is None else [own])
    return frozenset(found)


def resolve_max_model_len(directory: Path, wanted: int | None) -> int:
    """The engine's length: ``wanted``, or the model's; ModelError beyond its positions."""
    check_length(directory, "max_model_len", wanted)
    longest = wanted or positions_of(directory)
    if longest is None:
        raise ModelError(
            f"{directory}: config.json has no max_position_embeddings", "Set max_model_len."
        )
    return longest
