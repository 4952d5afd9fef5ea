"""How fast arms learn, beside how far they get: exploratory differences without verdicts.

The measures are the mean height of the greedy validation curve over the first third of the steps
and the step at which it reaches a level. A run that never reaches the level counts with its last
step (:func:`refblend.study.stats.statistics.first_reached`), which makes slow arms look less slow.
"""

from collections.abc import Iterable, Mapping, Sequence

import pandas as pd

from refblend.study.design.measures import label
from refblend.study.design.spec import ExperimentSpec
from refblend.study.report.readable import estimate
from refblend.study.runs.measures import wide, wide_of
from refblend.study.stats.statistics import paired_values, student_interval

OF_SPEED = ("train_acc_third", "val_auc_third", "steps_to_")
"""How the names of measures begin that tell how fast an arm learns."""
SPEED = ("val_auc_third", "steps_to_70")
"""The measures of speed."""
SPEED_COLUMNS = {
    "measure": "str", "arm": "str", "reference": "str", "n": "int64", "estimate": "float64",
    "low": "float64", "high": "float64",
}  # fmt: skip
"""``estimate`` is the mean of arm − reference over the ``n`` seeds that both have, with Student's
interval."""


def speed_labels(spec: ExperimentSpec) -> list[str]:
    """The measures of how fast an arm learns by which contrasts are decided."""
    endpoints = dict.fromkeys(map(spec.endpoint_of, spec.contrasts))
    return [label(endpoint) for endpoint in endpoints if endpoint.startswith(OF_SPEED)]


def speed_rows(
    values: pd.DataFrame,
    pairs: Iterable[tuple[str, str]],
    seeds: Mapping[str, Sequence[int]] | None = None,
    measures: Sequence[str] = SPEED,
    confidence: float = 0.95,
) -> pd.DataFrame:
    """Paired differences by the measures of speed: :data:`SPEED_COLUMNS`, by measure, then pair.

    Args:
        values: those of :func:`refblend.study.runs.measures.run_measures`.
        pairs: (arm, reference); one that shares no seed by a measure has no row there.
        seeds: of each arm, where not all of its runs are meant.
        measures: by which they are compared.
        confidence: of the intervals, which are not adjusted for their number.
    """
    rows = []
    asked = list(pairs)
    for measure in measures:
        for arm, reference in asked:
            own = None if seeds is None else {name: seeds[name] for name in (arm, reference)}
            table = (
                wide_of(values, measure, own) if own else wide(values, measure, [arm, reference])
            )
            found = student_interval(paired_values(table[arm], table[reference]), confidence)
            if found.n:
                numbers = (found.n, found.estimate, found.low, found.high)
                rows.append((measure, arm, reference, *numbers))
    return pd.DataFrame(rows, columns=list(SPEED_COLUMNS)).astype(SPEED_COLUMNS)


def readable_speed(table: pd.DataFrame) -> pd.DataFrame:
    """:func:`speed_rows` for readers: a row per pair, and a column for each measure."""
    rows: dict[tuple[str, str], dict[str, str]] = {}
    measures = list(dict.fromkeys(table.measure))
    for row in table.to_dict("records"):
        pair = (row["arm"], row["reference"])
        cells = rows.setdefault(pair, {"arm − reference": " − ".join(pair)})
        cells["n"] = f"{row['n']} pairs"
        cells[label(row["measure"])] = estimate(row)
    columns = ["arm − reference", "n", *map(label, measures)]
    return pd.DataFrame(list(rows.values()), columns=columns)
