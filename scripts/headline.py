"""Figures of the texts, drawn by `make figures` from results/cpu: docs/assets/headline.png, every
regime at its absolute level, and docs/assets/alignment.png, alignment against outcome. The numbers
of the second's right panel are results/cpu/advise.csv.
"""

from collections.abc import Collection
from pathlib import Path
from typing import Any

import pandas as pd
from matplotlib.lines import Line2D

from refblend.advice.alignment import Blend, interval, resampled
from refblend.advice.answer import samples_of
from refblend.study.design.spec import load_experiment
from refblend.study.report import style as plot
from refblend.study.report.alignment import REGIMES
from refblend.study.report.readable import write_csv
from refblend.study.stats.statistics import student_interval

ROOT = Path(__file__).parents[1]
ROLES = ("off", "judge", "shuffled", "oracle")
COLOURS = dict(zip(ROLES, (plot.BASELINE_COLOUR, *plot.PALETTE[:3]), strict=True))
ARMS = {
    "exact": (("off",), ("constant_terminal",), ("shuffled_terminal",), ("oracle",)),
    "noisy": (
        ("noisy_off",), ("noisy_judge", "noisy_challenger"), ("noisy_shuffled",), ("noisy_oracle",)
    ),
    "sparse": (
        ("sparse_off",), ("sparse_judge", "sparse_challenger"), ("sparse_shuffled",),
        ("sparse_oracle",),
    ),
}  # fmt: skip
"""Regime → the arms of each role."""
BLENDS = {
    "noisy_linear": "linear", "noisy_judge": "0.3", "noisy_c045": "0.45",
    "noisy_auto": "linear_auto", "noisy_inverse": "inverse_auto",
}  # fmt: skip
"""Arms of noisy_entropy with a weight of their own, and their names in the figure."""
RESPONSES = 8
"""To each prompt."""
MEASURES = {"test/sampled": "sampled test accuracy", "test/greedy": "greedy test accuracy"}


def regimes(steps: pd.DataFrame) -> plot.Drawn:
    """Accuracy by regime and role, on the judge's seeds; one that has not been trained is left out.

    ``steps``: ``runs.parquet`` (arm, seed, test/sampled, test/greedy).
    """
    tested = steps.dropna(subset=list(MEASURES))
    figure, axes = plot.panels(2, 2)
    for axis, (column, label) in zip(axes, MEASURES.items(), strict=True):
        marks = []
        for kind, by_role in enumerate(ARMS.values()):
            same = tested[tested.seed.isin(tested.seed[tested.arm.isin(by_role[1])])]
            for place, (role, arms) in enumerate(zip(ROLES, by_role, strict=True)):
                values = same.loc[same.arm.isin(arms), column]
                if len(values):
                    found = student_interval(values)
                    bars = ((found.low, found.high, 1.6),)
                    at = kind + 0.18 * (place - 1.5)
                    marks.append(plot.Mark(at, found.estimate, bars, colour=COLOURS[role]))
        plot.categories(axis, list(ARMS), upright=True)
        plot.draw_marks(axis, marks, upright=True, zero=False)
        axis.set(xlabel="rule reward", ylabel=label)
    look: dict[str, Any] = {"marker": "o", "linestyle": "none"}
    shown = {mark.colour for mark in marks}
    lines = [
        Line2D([], [], color=colour, label=role, **look)
        for role, colour in COLOURS.items()
        if colour in shown
    ]
    plot.one_legend(figure, (), extra=lines)
    return figure, (
        "Test accuracy after training, mean of the judge's seeds with its 95 % interval (shuffled, "
        "oracle: of some of these seeds). off: no blend; judge: a constant weight of 0.3 on the "
        "last token; shuffled: the judge's scores in random order (exact: with the weight "
        "`linear`); oracle: partial credit from the gold solution."
    )


def advised(responses: pd.DataFrame, summary: pd.DataFrame) -> pd.DataFrame:
    """What `refblend advise` says of constant weights, and what arms of that mean weight gained.

    ``responses``: ``responses.parquet``, in the order in which prompts were sampled; ``summary``:
    ``noisy_entropy_summary.csv``. Columns: arm, measure (``predicted``: gain in alignment over no
    blend at the arm's mean weight, from step 5 of constant 0.3; ``measured``: gain in training
    accuracy), estimate, low, high.
    """
    seen = responses[(responses.arm == "noisy_judge") & (responses.step == 5)]
    group = seen.groupby("seed").cumcount() // RESPONSES
    prompt = seen.seed.astype(str) + "/" + group.astype(str)
    samples = samples_of(seen.assign(prompt_id=prompt).rename(columns={"acc": "truth"}))
    own = summary.set_index(["measure", "arm"])
    weights = [own.loc[("weight_mean", arm), "mean"] for arm in BLENDS]
    sums = samples.sums([Blend(0.0), *map(Blend, weights)], True)
    point, drawn = sums.alignment(), sums.alignment(resampled(samples.prompts))
    rows = []
    for place, arm in enumerate(BLENDS, start=1):
        gains = drawn[:, place] - drawn[:, 0]
        rows.append((arm, "predicted", point[place] - point[0], *interval(gains)))
        measured = own.loc[("train_acc", arm), ["diff", "diff_low", "diff_high"]]
        rows.append((arm, "measured", *measured))
    return pd.DataFrame(rows, columns=["arm", "measure", "estimate", "low", "high"])


def alignment(arms: pd.DataFrame, predicted: Collection[str], gains: pd.DataFrame) -> plot.Drawn:
    """Left: alignment against the outcome; arms on which it was predicted are filled. Right: what
    was predicted from one arm's rollouts against what was measured.

    ``arms``: ``alignment.csv`` of reports (arm, regime, alignment, test_sampled); ``gains``: of
    :func:`advised`.
    """
    figure, (axis, right) = plot.panels(2, 2)
    for name, part in arms.groupby("regime"):
        for filled, some in part.groupby(part.arm.isin(predicted)):
            face = REGIMES[name] if filled else "none"
            look: dict[str, Any] = {"linestyle": "none", "marker": "o", "markersize": 5}
            label = f"{name}, the check" if filled else name
            colours = {"color": REGIMES[name], "markerfacecolor": face, "label": label}
            axis.plot(some.alignment, some.test_sampled, **look, **colours)
    axis.set(xlabel="alignment at step 5", ylabel="sampled test accuracy")
    plot.one_legend(figure, [axis])
    of = gains.set_index(["arm", "measure"])
    bars = {"fmt": "o", "markersize": 4, "elinewidth": 0.8, "color": REGIMES["noisy"]}
    for arm, name in BLENDS.items():
        x, y = of.loc[(arm, "predicted")], of.loc[(arm, "measured")]
        right.errorbar(x.estimate, y.estimate, _reach(y), _reach(x), **bars)
        at = (x.estimate, y.estimate)
        right.annotate(name, at, xytext=(4, 4), textcoords="offset points", size="x-small")
    right.set(xlabel="predicted gain in alignment", ylabel="gain in training accuracy")
    return figure, (
        "Left: alignment at step 5 against sampled test accuracy of every arm of M2 and M3. Right: "
        "gain in alignment that `refblend advise` predicts from step 5 of constant 0.3, against "
        "the gain in training accuracy of arms with that mean weight."
    )


def _reach(found: pd.Series) -> list[list[float]]:
    """How far an interval reaches below and above its estimate, as matplotlib wants it."""
    return [[found.estimate - found.low], [found.high - found.estimate]]


def main() -> None:
    """Draw them."""
    plot.apply_style()
    results, assets = ROOT / "results" / "cpu", ROOT / "docs" / "assets"
    tables = [pd.read_csv(results / name / "tables" / "alignment.csv") for name in ("m2", "m3")]
    study, series = ROOT / "params" / "study", ("noisy_entropy", "noisy_baselines", "noisy_dose")
    tested = {arm for name in series for arm in load_experiment(study / f"{name}.yaml").arms}
    tables[1] = tables[1].replace({"noisy_off": "noisy_off of M3"})  # other seeds
    summary = pd.read_csv(results / "m2" / "tables" / "noisy_entropy_summary.csv")
    gains = advised(pd.read_parquet(results / "responses.parquet"), summary)
    write_csv(gains, results / "advise.csv")
    for name, (figure, caption) in {
        "headline": regimes(pd.read_parquet(results / "runs.parquet")),
        "alignment": alignment(pd.concat(tables), tested, gains),
    }.items():
        plot.write_figure(figure, assets / f"{name}.png")
        print(caption)


if __name__ == "__main__":
    main()
