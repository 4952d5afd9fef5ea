"""Which figures a report has: of each experiment by what its file says of it, and of all together.

To add one, write its function in :mod:`.figures` and name it here.
"""

from collections.abc import Callable
from functools import partial

from refblend.study.report import figures, figures_runs
from refblend.study.report.alignment import alignment
from refblend.study.report.figures import Tables
from refblend.study.report.study import Study, judged, stable
from refblend.study.report.style import Drawn

Draw = Callable[[], Drawn]
WEIGHT = (figures_runs.weight_steps, figures_runs.weight_entropy, figures_runs.correlation)
"""How the weight behaves, of experiments that lead."""


def figures_of(study: Study, tables: Tables) -> dict[str, dict[str, Draw]]:
    """Section → name of a figure → what draws it; sections are experiments, ``""`` and ``weight``.

    The file of an experiment's figure is named ``<experiment>_<function>``.
    """
    found: dict[str, dict[str, Draw]] = {"": {}, "weight": {}}
    if tables["verdicts"].primary.any():
        found[""]["verdicts"] = partial(figures.verdict_forest, study, tables)
    if "alignment" in tables:
        found[""]["alignment"] = partial(alignment, study, tables)
    for name, spec in study.experiments.items():
        compares = not spec.exclusive and not stable(spec)
        asked = {
            figures_runs.training: stable(spec),
            figures.costs: spec.exclusive,
            figures.forest: compares,
            figures.sensitivity: bool(spec.sweep),
            figures.dose: spec.dose,
            figures.judge_quality: judged(spec) and compares,
            figures.judges: judged(spec),
            figures.learning: compares and not spec.sweep and not judged(spec),
        }
        own = [draw for draw, wanted in asked.items() if wanted]
        found[name] = {f"{name}_{d.__name__}": partial(d, study, tables, name) for d in own}
        for draw in WEIGHT if spec.leads else ():
            found["weight"][f"{name}_{draw.__name__}"] = partial(draw, study, tables, name)
    return found
