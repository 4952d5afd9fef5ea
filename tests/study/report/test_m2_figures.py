"""Figures of M2 from synthetic studies with noise, responses and gaps; nothing is trained."""

from collections.abc import Collection, Iterator
from dataclasses import replace
from pathlib import Path

import m2_frames
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure
from matplotlib.text import Text
from matplotlib.transforms import Bbox

from refblend.ppo.entropy_maps import entropy_to_weight_cosine
from refblend.ppo.weights import weight_for
from refblend.study.design.spec import ExperimentSpec
from refblend.study.report.m2.costs import SCORING_COLUMNS
from refblend.study.report.m2.figures_learning import settled_limits
from refblend.study.report.m2.figures_weights import ENTROPIES, function_values, weight_params
from refblend.study.report.m2.study import M2Study, make_study
from refblend.study.report.plotting import common as plot
from refblend.study.report.plotting.common import (
    Drawn,
    Mark,
    apply_style,
    draw_marks,
    interval_bar,
    stretch_middle,
    value_limits,
    write_figure,
)
from refblend.study.report.registry import Tables, load_report
from refblend.study.runs.collect import RESPONSE_COLUMNS, Collected

REPORT = load_report("m2")
NAMES = REPORT.names("figure", m2_frames.specs())
JUDGE_SKILL = {"weak": 0.25, "medium": 0.55, "strong": 0.8}
EFFECTS = {
    "linear": 0.02,
    "cosine": 0.035,
    "exp": 0.01,
    "piecewise": 0.02,
    "constant": -0.03,
    "inverse": -0.05,
    "shuffled": -0.01,
    "random": -0.08,
    "linear_terminal": 0.05,
    "linear_terminal_w01": 0.01,
    "linear_terminal_w02": 0.045,
    "linear_terminal_w04": 0.03,
    "linear_terminal_t06": 0.03,
    "linear_terminal_t08": 0.04,
    "linear_terminal_t12": -0.03,
    "weak_constant_terminal": -0.06,
    "strong_constant_terminal": 0.08,
    "strong_linear_terminal": 0.07,
    "gae_linear": -0.02,
}
NOISE = {
    "val-core/": 0.02,
    "critic/score": 0.02,
    "avg_entropy": 0.03,
    "response_length": 1.5,
    "time_per_step": 0.3,
    "throughput": 120.0,
    "memory_used": 0.05,
    "test/": 0.02,
    "nonzero_rate": 0.01,
    "ref_quality/auc": 0.02,
}
STRATEGIES = ("linear", "cosine", "exp", "piecewise", "constant", "inverse", "schedule")


def noisy(metrics: pd.DataFrame) -> pd.DataFrame:
    """The frames' metrics with noise of step and run, an entropy an arm, and a weight from it."""
    rng = np.random.default_rng(7)
    metrics = metrics.copy()
    for name, size in NOISE.items():
        rows = metrics.metric.str.contains(name)
        metrics.loc[rows, "value"] += rng.normal(0, size, int(rows.sum()))
    for judge, auc in (("weak", -0.15), ("strong", 0.1)):
        rows = metrics.arm.str.startswith(judge) & metrics.metric.str.endswith("/auc")
        metrics.loc[rows, "value"] += auc
    for name in ("nonzero_rate", "valid_rate"):
        rows = metrics.metric.str.endswith(name)
        metrics.loc[rows, "value"] = metrics.loc[rows, "value"].clip(0, 1)
    for kind, part in (("len320", 0.4), ("ctx2048", 0.2), ("serial", 0.8)):
        rows = metrics.arm.str.contains(kind) & metrics.metric.isin(
            ["perf/time_per_step", "perf/cpu_memory_used_gb"]
        )
        metrics.loc[rows, "value"] += part
    keys = ["arm", "seed", "step"]
    entropy = metrics[metrics.metric == "actor/ref_quality/avg_entropy"].set_index(keys)["value"]
    rows = metrics.metric == "actor/ref_quality/weight"
    at = entropy.reindex(pd.MultiIndex.from_frame(metrics.loc[rows, keys])).to_numpy()
    names = metrics.loc[rows, "arm"].str.extract(f"({'|'.join(STRATEGIES)})")[0].fillna("linear")
    steps = metrics.loc[rows, "step"].to_numpy()
    metrics.loc[rows, "value"] = [
        weight_for(name, max(value, 0.0), int(step), 20)
        for name, value, step in zip(names, at, steps, strict=True)
    ]
    return metrics


def responses(frames: Collected, count: int = 40) -> pd.DataFrame:
    """Judged responses of every finished run under terminal, with scores as good as its judge."""
    rng = np.random.default_rng(11)
    parts = []
    for row in frames.finished[frames.finished.arm.str.endswith("_terminal")].itertuples():
        judge = next((name for name in JUDGE_SKILL if row.arm.startswith(name)), "medium")
        for step in (5, 20):
            right = (rng.uniform(size=count) < 0.2 + 0.02 * step).astype(float)
            skill = JUDGE_SKILL[judge]
            score = np.clip(skill * right + (1 - skill) * rng.uniform(size=count), 0, 1)
            frame = pd.DataFrame({"reward": right, "acc": right, "judge_score": score})
            parts.append(
                frame.assign(
                    arm=row.arm, seed=row.seed, step=step, judge_path="text", length=30.0,
                    judge_valid=rng.uniform(size=count) < 0.97,
                )
            )  # fmt: skip
    frame = pd.concat(parts) if parts else pd.DataFrame()
    return frame.reindex(columns=list(RESPONSE_COLUMNS)).astype(RESPONSE_COLUMNS)


def figure_study(
    scoring: Path | None = None,
    scale: str = "cpu",
    missing: Collection[tuple[str, int]] = (),
    experiments: dict[str, ExperimentSpec] | None = None,
) -> M2Study:
    """A study with noise of step and seed, and with the whole configuration."""
    chosen = experiments or m2_frames.specs()
    runs = {
        (arm, seed): None
        for spec in chosen.values()
        for arm in spec.arms_of(scale)
        for seed in spec.seeds[scale]
    }
    costs = {arm for name in ("E", "F") if name in chosen for arm in chosen[name].arms}
    frames = m2_frames.collected(runs, EFFECTS, missing, costs)
    frames = replace(frames, metrics=noisy(frames.metrics))
    frames = replace(frames, responses=responses(frames))
    return make_study(frames, chosen, scale, m2_frames.PARAMS, scoring)


def drawn(name: str, study: M2Study, tables: Tables) -> Drawn:
    """A figure and its caption."""
    made: Drawn = REPORT.find(name, study.experiments).make(study=study, tables=tables)
    return made


def shown_texts(figure: Figure) -> list[tuple[str, Bbox]]:
    """Every text that a drawn figure shows, with its box in pixels; ticks out of view are none."""
    renderer = figure.canvas.get_renderer()
    texts = list(figure.texts)
    legends = list(figure.legends)
    for axis in figure.axes:
        texts += [*axis.texts, axis.title, axis.xaxis.label, axis.yaxis.label]
        legends += [axis.get_legend()] if axis.get_legend() else []
        for side, limits in ((axis.xaxis, axis.get_xlim()), (axis.yaxis, axis.get_ylim())):
            inside = (min(limits) - 1e-9, max(limits) + 1e-9)
            texts += [
                label
                for tick in side.get_major_ticks()
                if inside[0] <= tick.get_loc() <= inside[1]
                for label in (tick.label1, tick.label2)
            ]
    texts += [text for legend in legends for text in legend.get_texts()]
    shown = [text for text in texts if text and text.get_visible() and text.get_text().strip()]
    return [(text.get_text(), text.get_window_extent(renderer)) for text in shown]


def collisions(texts: list[tuple[str, Bbox]]) -> list[tuple[str, str]]:
    """Pairs of texts whose boxes meet by more than a pixel."""
    boxes = [(text, box.padded(-1)) for text, box in texts]
    return [
        (one, other)
        for place, (one, box) in enumerate(boxes)
        for other, second in boxes[place + 1 :]
        if box.overlaps(second)
    ]


def cut_off(figure: Figure, texts: list[tuple[str, Bbox]]) -> list[str]:
    """Texts that reach beyond the figure."""
    page = figure.bbox.padded(1)
    return [
        text
        for text, box in texts
        if not (page.x0 <= box.x0 and box.x1 <= page.x1 and page.y0 <= box.y0 and box.y1 <= page.y1)
    ]


MISSING = [("cosine", 2), ("exp_terminal", 1), *(("random_terminal", seed) for seed in range(1, 6))]


@pytest.fixture(scope="module")
def scoring(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the target ``scoring`` leaves behind, as far as M2 reads it."""
    folder = tmp_path_factory.mktemp("scoring")
    (folder / "tables").mkdir()
    arms = {"few_shot": "D1", "compact": "D1", "new_tokens_32": "D2", "clip_off": "D3"}
    rows = [
        dict.fromkeys(SCORING_COLUMNS, 0.9)
        | {"experiment": experiment, "arm": arm, "responses": 360}
        for arm, experiment in arms.items()
    ]
    pd.DataFrame(rows).to_csv(folder / "tables" / "robustness.csv", index=False)
    return folder


@pytest.fixture(scope="module")
def whole(scoring: Path) -> M2Study:
    """Every arm and seed of scale cpu but those of MISSING."""
    return figure_study(scoring, missing=MISSING)


@pytest.fixture(scope="module")
def tables(whole: M2Study) -> Tables:
    """Its tables."""
    return m2_frames.tables_of(whole)


@pytest.fixture(autouse=True)
def _style() -> Iterator[None]:
    apply_style()
    yield
    plt.close("all")


@pytest.mark.parametrize("name", NAMES)
def test_texts_are_whole_and_apart(name: str, whole: M2Study, tables: Tables) -> None:
    figure, caption = drawn(name, whole, tables)
    figure.canvas.draw()
    texts = shown_texts(figure)

    assert collisions(texts) == []
    assert cut_off(figure, texts) == []
    assert caption.endswith("Commit 0123456789.")
    assert "n = " in caption
    words = {text for text, _ in texts}
    gaps = {"no finished run"} if name in ("A_learning", "A_time", "A_difference") else set()
    gaps |= {"no pair of runs"} if name == "A_forest" else set()
    assert {word for word in words if word.startswith("no ")} - {"no judge"} == gaps
    if gaps:
        assert "random_terminal 0 of 5" in caption


@pytest.mark.parametrize("name", ["A_forest", "A_weight_entropy", "B_sensitivity", "H_judges"])
def test_reruns_are_equal_to_the_byte(
    name: str, whole: M2Study, tables: Tables, tmp_path: Path
) -> None:
    for suffix in ("svg", "png"):
        for number in (1, 2):
            write_figure(*_swapped(drawn(name, whole, tables), tmp_path / f"{number}.{suffix}"))
        one, two = (tmp_path / f"{number}.{suffix}" for number in (1, 2))
        assert one.read_bytes() == two.read_bytes()


def _swapped(made: Drawn, path: Path) -> tuple[Figure, Path, str]:
    return made[0], path, made[1]


@pytest.mark.parametrize("count", [1, 3, 9, 20])
def test_a_legend_takes_the_rows_that_its_figure_s_width_needs(count: int) -> None:
    figure, (axis,) = plot.panels(1, 1)
    for number in range(count):
        axis.plot([0, 1], label=f"sparse_challenger_{number}")
    plot.one_legend(figure, [axis])
    figure.canvas.draw()
    assert cut_off(figure, shown_texts(figure)) == []
    (legend,) = figure.legends
    assert len(legend.get_texts()) == count


def test_marks_are_filled_by_the_verdicts_of_the_contrasts(whole: M2Study, tables: Tables) -> None:
    """By the contrasts' own measure; the exact test of the summary decides only about the rest."""
    assert whole.compared_by("A") == "test_sampled"
    verdicts = tables["verdicts"].copy()
    named = (verdicts.experiment == "A") & (verdicts.endpoint == "test_sampled")
    named &= (verdicts.treated == "linear_terminal") & (verdicts.reference == "off")
    assert named.sum() == 1
    filled = {}
    for verdict in ("undecided", "worse"):
        verdicts.loc[named, "verdict"] = verdict
        figure, caption = drawn("A_forest", whole, {**tables, "verdicts": verdicts})
        axis = figure.axes[1]  # terminal
        names = [label.get_text() for label in figure.axes[0].get_yticklabels()]
        place = names.index("linear")
        (mark,) = (
            line
            for line in axis.lines
            if line.get_marker() == "o" and int(line.get_ydata()[0]) == place
        )
        filled[verdict] = mark.get_markerfacecolor() != "white"
        assert "in test accuracy (sampled)" in caption
    assert filled == {"undecided": False, "worse": True}


def test_absent_runs_are_said_in_the_panel() -> None:
    gone = [("linear", 1), ("linear", 2), ("off", 2)]
    made = figure_study(scale="smoke", experiments={"A": m2_frames.specs()["A"]}, missing=gone)
    said = {}
    for figure in REPORT.artifacts(made.experiments, "figure"):
        shown, caption = figure.make(study=made, tables=m2_frames.tables_of(made))
        texts = {text.get_text() for text in shown.findobj(Text)}
        said[figure.name] = {text for text in texts if text.startswith("no ")}
        assert "Commit 0123456789." in caption
        plt.close(shown)
    assert said["A_learning"] == {"no finished run"}
    assert "no pair of runs" in said["A_forest"]
    assert not {name for name in said if name[:2] in ("B_", "E_", "H_")}


def test_forest_shows_the_mean_paired_differences(whole: M2Study, tables: Tables) -> None:
    figure, _ = drawn("A_forest", whole, tables)
    left, axis = figure.axes  # per token, terminal
    labels = [label.get_text() for label in left.get_yticklabels()]
    marks = {
        labels[int(line.get_ydata()[0])]: line.get_xdata()[0]
        for line in axis.lines
        if line.get_marker() == "o"
    }
    metrics = whole.collected.metrics
    test = metrics[metrics.metric == "test/sampled"].set_index(["arm", "seed"])["value"]
    expected = [test["linear_terminal", seed] - test["off", seed] for seed in range(1, 6)]
    assert marks["linear"] == pytest.approx(np.mean(expected))
    expected = [test["exp_terminal", seed] - test["off", seed] for seed in range(2, 6)]
    assert marks["exp"] == pytest.approx(np.mean(expected))
    assert "random" not in marks


def test_axes_of_differences_hold_all_means_but_not_the_first_bands() -> None:
    steps = {0: 0.0, 2: 0.1, 4: 0.03, 6: 0.01}
    spread = {0: 0.0, 2: 1.0, 4: 0.002, 6: 0.002}
    frame = pd.DataFrame(
        [
            {"arm": arm, "seed": seed, "step": step, "value": (mean + own * spread[step]) * factor}
            for arm, factor in (("a", 1), ("b", -1))
            for seed, own in ((1, -1), (2, 0), (3, 1))
            for step, mean in steps.items()
        ]
    )
    limits = settled_limits(frame, 0.02)
    assert limits["a"] == limits["b"]
    # The mean of step 2 is 0.1, its seeds and their band reach beyond 1.
    assert -0.13 < limits["a"][0] < -0.1
    assert 0.1 < limits["a"][1] < 0.13
    wide = frame.assign(value=frame.value.where(frame.arm == "a", frame.value * 10))
    own = settled_limits(wide, 0.02)
    assert own["a"][1] < 0.13
    assert -1.3 < own["b"][0] < -1
    assert settled_limits(frame.head(0), 0.02) == {}


def test_captions_name_the_arms_that_are_drawn() -> None:
    study = figure_study(scale="smoke", experiments={"A": m2_frames.specs()["A"]})
    runs = study.collected.runs
    runs.loc[runs.arm == "linear", "commit"] = "fedcba9876543210"
    assert study.origin("A", arms=["off"]) == "n = 2 seeds per arm. Commit 0123456789."
    assert "fedcba9876" in study.origin("A")


def test_training_time_adds_up_the_steps(whole: M2Study) -> None:
    metrics = whole.collected.metrics
    own = metrics[(metrics.arm == "linear") & (metrics.seed == 3)]
    times = own[own.metric == "perf/time_per_step"].sort_values("step")["value"].to_numpy()
    found = whole.seconds
    found = found[(found.arm == "linear") & (found.seed == 3)]
    assert list(found.step) == list(range(21))
    assert found.seconds.iloc[0] == 0
    assert found.seconds.iloc[4] == pytest.approx(times[0] + times[1] + times[2] + times[3])


def test_weight_functions_are_the_blend_s(whole: M2Study) -> None:
    params = weight_params(whole, "linear_terminal_w04")
    assert params.max_weight == 0.4
    shown = function_values("cosine", params)
    assert shown == [entropy_to_weight_cosine(entropy, 0.4, 1.0) for entropy in ENTROPIES]


@pytest.mark.parametrize(
    ("seeds", "bounds", "low", "high"),
    [
        ([0.0, 1.0], [-0.5, 1.2], -0.5, 1.2),
        ([0.0, 1.0], [-9.0, 9.0], -1.0, 2.0),
        ([0.0, 1.0, np.nan], [np.nan], 0.0, 1.0),
    ],
)
def test_limits_hold_seeds_and_near_bounds(
    seeds: list[float], bounds: list[float], low: float, high: float
) -> None:
    assert value_limits(seeds, bounds, pad=0.0) == pytest.approx((low, high))


def test_no_limits_without_values_and_room_for_equal_ones() -> None:
    assert value_limits([np.nan]) is None
    limits = value_limits([0.5, 0.5])
    assert limits is not None
    assert limits[0] < 0.5 < limits[1]


@pytest.mark.parametrize(("widest", "scale"), [(0.1, "linear"), (1.0, "symlog")])
def test_a_few_wide_intervals_leave_the_others_their_room(widest: float, scale: str) -> None:
    _, axis = plt.subplots()
    bars = [(-0.02, 0.02), (0.0, 0.05), (0.5 - widest / 2, 0.5 + widest / 2)]
    marks = [
        Mark(place, (low + high) / 2, ((low, high, 1.0),)) for place, (low, high) in enumerate(bars)
    ]
    draw_marks(axis, marks)
    limits = axis.get_xlim()
    stretch_middle((axis, marks))
    assert axis.get_xscale() == scale
    assert axis.get_xlim() == limits
    if scale == "symlog":  # to twice the median width, 0.05
        assert list(axis.get_xticks()) == pytest.approx([0.0, 0.1, 0.5])
        ends = axis.transScale.transform([(0.0, 0.0), (0.1, 0.0)])
        left, right = axis.transLimits.transform(ends)[:, 0]
        assert right - left > 2 * 0.1 / (limits[1] - limits[0])


def test_intervals_beyond_the_panel_end_in_an_arrow_head() -> None:
    _, axis = plt.subplots()
    axis.set_xlim(0.0, 1.0)
    interval_bar(axis, 0.0, -2.0, 0.5, color="black")
    interval_bar(axis, 1.0, 0.2, 0.5, color="black")
    assert [(line.get_marker(), line.get_xdata()[0]) for line in axis.lines] == [("<", 0.0)]
    assert axis.get_xlim() == (0.0, 1.0)
