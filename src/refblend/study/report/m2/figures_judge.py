"""M2's figures of the judge: how many scores can be used, their distribution and calibration."""

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from refblend.study.report.m2.labels import in_words
from refblend.study.report.m2.study import REPORT, M2Study, varies_judge
from refblend.study.report.plotting.common import Drawn, categories, no_data, one_legend, panels
from refblend.study.report.plotting.panels import (
    MIN_BIN,
    bin_scores,
    reliability,
    score_distribution,
)
from refblend.study.report.plotting.style import COLUMN, PALETTE
from refblend.study.report.registry import Tables

RATES = {
    "valid_rate": ("valid", "D", PALETTE[1]),
    "nonzero_rate": ("valid and not 0", "o", PALETTE[0]),
}
"""Label, mark and colour of each rate."""


@REPORT.figure("score_coverage", section="scoring_path")
def score_coverage(study: M2Study, tables: Tables) -> Drawn:
    """Share of valid, and of valid and non-zero scores, for every configuration with a judge."""
    bases = {base for name in study.learning for base in study.baselines(name)}
    arms = [arm for arm in study.all_arms() if arm not in bases]
    ends = {arm: study.resolved[arm].placement == "terminal" for arm in arms}
    values = study.values[["arm", "measure", "value"]]
    scoring = tables["scoring_path"]
    measured = scoring.assign(arm=scoring.experiment + " " + scoring.arm)
    shown = {
        "per token, per-token mean": ([arm for arm in arms if not ends[arm]], values),
        "terminal": ([arm for arm in arms if ends[arm]], values),
        "scoring path": (list(measured.arm), measured.melt("arm", list(RATES), "measure")),
    }
    longest = max(3, *[len(names) for names, _ in shown.values()])
    figure, axes = panels(3, 3, figsize=(2 * COLUMN, 0.9 + 0.165 * longest))
    for axis, (title, (names, rates)) in zip(axes, shown.items(), strict=True):
        _rates(axis, names, rates[rates.arm.isin(names) & rates.measure.isin(RATES)])
        axis.set_title(title)
    lowest = min(axis.get_xlim()[0] for axis in axes[:2])
    for axis in axes[:2]:
        axis.set_xlim(lowest, axis.get_xlim()[1])
    figure.supxlabel("share of judged responses", fontsize="medium")
    one_legend(figure, axes)
    judged = int(scoring.responses.max()) if len(scoring) else 0
    return figure, (
        "Share of judged responses whose score is valid, and valid and not zero, against the "
        "configuration. Left and middle: the arms that train to the end and have a judge, by "
        "placement of its score; marks: mean over seeds of a run's mean over its steps; dots: "
        f"seeds. Right: the configurations of the scoring study on {judged} fixed responses each. "
        f"The axes do not begin at 0. {study.origin(*study.learning, arms=arms)}"
    )


def _rates(axis: Axes, arms: list[str], rates: pd.DataFrame) -> None:
    """Draw the rates of some arms: columns arm, measure, value."""
    categories(axis, [in_words(arm) for arm in arms], fontsize="x-small")
    rates = rates.dropna(subset="value")
    for number, (rate, (label, shape, colour)) in enumerate(RATES.items()):
        seeds = rates[rates.measure == rate].groupby("arm", sort=False)["value"]
        for arm, values in seeds:
            place = arms.index(str(arm)) + (0.13 if number else -0.13)
            dots = {"markersize": 2, "alpha": 0.5 if len(values) > 1 else 0, "color": colour}
            axis.plot(values, np.full(len(values), place), ".", **dots)
            axis.plot(values.mean(), place, shape, color=colour, markersize=3, label=label)
    low = rates["value"].min() if len(rates) else 0.0
    room = 0.08 * max(1 - low, 0.02)
    axis.set_xlim(low - room, 1 + room)
    axis.locator_params(axis="x", nbins=4)
    if rates.empty:
        no_data(axis)


@REPORT.figure("{experiment}_judges", each=varies_judge)
def judges_in_training(study: M2Study, experiment: str) -> Drawn:
    """Distribution of the scores by correctness, and their calibration, for every judge."""
    frame = study.of(experiment, study.responses)
    valid = frame[frame.judge_valid.fillna(False).astype(bool)]
    judges = study.judges(experiment)
    options = {"sharex": True, "sharey": "row"}
    figure, axes = panels(2 * len(judges), len(judges), 0.65 * COLUMN, **options)
    above, below = axes[: len(judges)], axes[len(judges) :]
    auc = study.wide(experiment, "judge_auc")
    for top, bottom, (judge, arms) in zip(above, below, judges.items(), strict=False):
        part = valid[valid.arm.isin(arms)]
        score_distribution(top, part)
        top.set(title=f"{judge} judge, {len(part)} scores", xlabel="")
        bins = bin_scores(part.judge_score, part.acc)
        reliability(bottom, [("", bins, "#333333")] if len(part) else [])
        mean = auc[arms].stack().mean()
        bottom.set_title("" if np.isnan(mean) else f"AUC {mean:.3f}", fontsize="small")
    above[0].set_ylabel("share of responses")
    below[0].set_ylabel("share of right answers")
    one_legend(figure, above)
    invalid = f"{1 - len(valid) / len(frame):.1%}" if len(frame) else "none"
    return figure, (
        f"Experiment {experiment}: the judges' valid scores of the kept training responses, all "
        "seeds and all arms with that judge together. Above: their distribution, right and wrong "
        "answers apart, as shares of all. Below: share of right answers in ten equal bins of the "
        f"score (bins of fewer than {MIN_BIN} responses are left out; on the dashed line a score "
        "is the chance that the answer is right), and the AUC over all training steps. Without a "
        f"valid score: {invalid} of {len(frame)} kept responses. {study.origin(experiment)}"
    )
