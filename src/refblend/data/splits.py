"""Train, validation, sanity and test rows of a data set that comes with train and test only."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from refblend.data.schema import PromptRow, read_rows, write_rows
from refblend.errors import DataError
from refblend.files import read_record, sha256_file, write_json
from refblend.seeding import derive_generator

SPLITS = ("train", "validation", "test", "sanity")
WRITTEN = "written.json"
"""Name → SHA-256 of the files that a call wrote to a folder; only those are ever replaced."""


def write_splits(out: Path, splits: Mapping[str, Sequence[PromptRow]]) -> None:
    """Write ``<split>.parquet`` of every split to a folder, in place of those of an earlier call.

    Another file with these rows is left alone; DataError, before anything is written, for one
    with other rows.
    """
    files = {out / f"{name}.parquet": rows for name, rows in splits.items()}
    record = out / WRITTEN
    ours = read_record(record, DataError, "Delete it.") if record.exists() else {}
    kept = [f for f in files if f.exists() and sha256_file(f) != ours.get(f.name)]
    for file in kept:
        if read_rows(file) != list(files[file]):
            raise DataError(f"{file} holds other rows", "Delete it, or name another folder.")
    for file in [file for file in files if file not in kept]:
        write_rows(file, files[file])
        write_json(record, ours := ours | {file.name: sha256_file(file)})


def hold_out(
    train: Sequence[PromptRow], test: Sequence[PromptRow], validation: int, sanity: int, seed: int
) -> dict[str, list[PromptRow]]:
    """Draw the validation and sanity rows from the train split; no question is in two splits.

    Of the train rows, repeated questions and those of the test split are left out. The sanity rows
    are drawn last, so their number changes no validation row. DataError: too few train rows.
    """
    taken = {row.question for row in test}
    first = {row.question: row for row in reversed(train)}
    kept = [row for row in train if row is first[row.question] and row.question not in taken]
    if validation + sanity >= len(kept):
        raise DataError(
            f"{validation} validation and {sanity} sanity rows leave nothing of {len(kept)} train "
            "rows",
            "Lower --validation or --sanity.",
        )
    order = derive_generator(seed, "held out").permutation(len(kept)).tolist()
    places = {"validation": order[:validation], "sanity": order[validation : validation + sanity]}
    held_out = {place for chosen in places.values() for place in chosen}
    rest = [row for place, row in enumerate(kept) if place not in held_out]
    drawn = {name: [kept[place] for place in sorted(chosen)] for name, chosen in places.items()}
    found = {"train": rest, "test": list(test), **drawn}
    return {name: found[name] for name in SPLITS}
