"""Tables of finished runs, as a report or a user wrote them."""

from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from refblend.documents import shorten
from refblend.errors import StudyError


def read_table(path: Path, columns: Sequence[str], remedy: str) -> pd.DataFrame:
    """A CSV file with one row per run; ``arm`` and ``seed`` are text.

    Raises:
        StudyError: it is no table, lacks one of ``columns``, or has a run twice; ends with the
            remedy.
    """
    try:
        table = pd.read_csv(
            path, dtype={"arm": str, "seed": str}, keep_default_na=False, na_values=["", "nan"]
        )
    except (OSError, ValueError) as error:
        reason = shorten(str(error), 200)
        raise StudyError(f"{path}: cannot be read as a table ({reason})", remedy) from None
    if missing := [name for name in columns if name not in table.columns]:
        raise StudyError(f"{path}: no column {', '.join(missing)}", remedy)
    for run in table[table.duplicated(["arm", "seed"])].itertuples():
        raise StudyError(f"{path}: arm {run.arm}, seed {run.seed} has several rows", remedy)
    return table
