"""R's own figure: its primary verdicts, each with the other scale's beneath it."""

from typing import Any

import pandas as pd

from refblend.study.report.beside import SAME, counterpart_of
from refblend.study.report.plotting.common import Drawn
from refblend.study.report.plotting.forest import FOREST, verdict_forest
from refblend.study.report.r.study import REPORT, RStudy
from refblend.study.report.registry import Tables


@REPORT.figure("verdicts", preview=True)
def forest(study: RStudy, tables: Tables) -> Drawn:
    """The primary contrasts, and beneath each its counterpart at the other scale."""
    counterparts = {
        tuple(row[key] for key in SAME): counterpart_of(row)
        for row in tables["beside"].to_dict("records")
    }
    rows: list[dict[Any, Any]] = []
    names: list[str] = []
    table = tables["verdicts"]
    for row in table[table.primary].to_dict("records"):
        pair = f"{row['treated']} − {row['reference']}"
        rows.append(row)
        names.append(f"{row['experiment']}: {pair}")
        if there := counterparts.get(tuple(row[key] for key in SAME)):
            # Only what the two have in common: of the others ``there`` has its own, or none.
            rows.append({key: row[key] for key in SAME} | there)
            names.append(f"the same at {there['scale']} ({there['experiment']})")
    figure = verdict_forest(pd.DataFrame(rows, columns=table.columns), names)
    beneath = (
        f", each above the same contrast at scale {study.experiment.beside}"
        if len(rows) > len(table[table.primary])
        else ""
    )
    return figure, (
        f"The primary contrasts of {'/'.join(study.inputs.study)}, treated − reference{beneath}, "
        f"{FOREST}"
    )
