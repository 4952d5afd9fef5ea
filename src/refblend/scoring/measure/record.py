"""The JSON records of a measurement of a judge: the numbers, and apart from them where and when.

The numbers are hashed with the models and results that they belong to, so that they hold neither
times nor commits nor anything of the machine: measuring again gives the same file.
"""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from refblend.files import OPTIMIZER_FILE, sha256_file, sha256_tree


def measurement(
    judge: Path, corpus_file: Path, corpus: pd.DataFrame, content: Mapping[str, Any]
) -> dict[str, Any]:
    """The numbers (``content``; tables become lists of rows), with what they were measured on."""
    counts = {
        column: {str(k): int(n) for k, n in corpus[column].value_counts().items()}
        for column in ("length", "difficulty")
        if column in corpus
    }
    return {
        "judge": judge.name,
        "judge_sha256": sha256_tree(judge, without=[OPTIMIZER_FILE]),
        "corpus": {
            "file": corpus_file.name,
            "sha256": sha256_file(corpus_file),
            "responses": len(corpus),
            "right": int(corpus["label"].sum()),
            **counts,
        },
        **{key: plain(value) for key, value in content.items()},
    }


def plain(value: Any) -> Any:
    """Frames, NumPy numbers and NaN as JSON holds them: lists of rows, numbers, null."""
    if isinstance(value, pd.DataFrame):
        return [plain(row) for row in value.to_dict("records")]
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
