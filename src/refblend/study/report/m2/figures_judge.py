"""M2's figures of the judge: how many scores can be used, their distribution and calibration."""

import numpy as np

from refblend.study.report.m2.study import REPORT, M2Study, varies_judge
from refblend.study.report.plotting.common import Drawn, one_legend, panels
from refblend.study.report.plotting.panels import (
    MIN_BIN,
    bin_scores,
    reliability,
    score_distribution,
)
from refblend.study.report.plotting.style import COLUMN


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
