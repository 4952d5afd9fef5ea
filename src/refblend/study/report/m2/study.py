"""Milestone M2's input: the collected runs, the experiments behind them, and one value per run.

What an experiment is about follows from its facts (:class:`..ExperimentSpec`), what an arm is from
its resolved configuration (:class:`..Arm`): no code here knows a letter or the name of an arm.
"""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from operator import attrgetter
from pathlib import Path
from statistics import mode

import pandas as pd

from refblend.errors import StudyError
from refblend.ppo.choices import PLACEMENTS, Placement
from refblend.study.design.arms import SCORE, Arm, resolve_arms
from refblend.study.design.measures import MEASURES
from refblend.study.design.spec import ExperimentSpec, SweepSpec
from refblend.study.report.m2.starts import starts_of
from refblend.study.report.plotting import common as plot
from refblend.study.report.readable import listed, words
from refblend.study.report.registry import Inputs, Report
from refblend.study.report.shared import RUN, RunStudy, curve_name
from refblend.study.report.summary import Family
from refblend.study.report.verdicts import refuse_mixed_models
from refblend.study.runs.collect import Collected, read_collected
from refblend.study.runs.curves import series, validation_frame
from refblend.study.runs.incidents import commit_text
from refblend.study.runs.measures import wide_of

SCORING = f"{SCORE}.scoring"
LEVEL_NAMES = {
    "per_token_mean": "per-token mean",
    "grpo": "GRPO",
    "gae": "GAE",
    "global_pool": "shared pool",
    "judge_pool": "dedicated pool",
    "True": "on",
    "False": "off",
}
"""Levels with a name of their own."""


@dataclass(frozen=True)
class M2Study(RunStudy):
    """The input of tables, figures and text."""

    experiments: Mapping[str, ExperimentSpec]
    resolved: Mapping[str, Arm]
    """Every arm of the experiments at this scale, by name."""
    scale: str
    scoring: Path | None = None
    """``results/<scale>/scoring``; null: the scoring path (experiment D) was not measured."""

    @property
    def learning(self) -> list[str]:
        """Experiments whose runs train to the end."""
        return [name for name, spec in self.experiments.items() if learns(spec)]

    @property
    def leading(self) -> list[str]:
        """Experiments that the first page is about."""
        return [name for name in self.learning if self.experiments[name].leads]

    @property
    def curves(self) -> Collected:
        """The runs of the experiments that learn; an arm of several warm starts is several arms."""
        arms, frames = self.all_arms(), self.collected
        runs, metrics = (frame[frame.arm.isin(arms)] for frame in (frames.runs, frames.metrics))
        for arm, starts in self.starts.items():
            for start, seeds in starts.items() if len(starts) > 1 else ():
                runs, metrics = (
                    frame.assign(
                        arm=frame.arm.mask(
                            (frame.arm == arm) & frame.seed.isin(seeds), curve_name(arm, start)
                        )
                    )
                    for frame in (runs, metrics)
                )
        return replace(frames, runs=runs, metrics=metrics)

    def arms(self, experiment: str) -> list[str]:
        """Arms of an experiment at this scale, in the order of its file; none if it is absent."""
        return list(self.seeds(experiment))

    def seeds(self, experiment: str) -> dict[str, list[int]]:
        """Arms of an experiment at this scale, each with its seeds; none if it is absent."""
        spec = self.experiments.get(experiment)
        return spec.seeds_by_arm(self.scale) if spec else {}

    def all_arms(self) -> list[str]:
        """Arms of the experiments that learn, each once."""
        return list(dict.fromkeys(arm for name in self.learning for arm in self.arms(name)))

    def all_ranked(self) -> list[str]:
        """Those of :meth:`all_arms` that can be called the best of all."""
        ranked = {arm for name in self.learning for arm in self.ranked(name)}
        return [arm for arm in self.all_arms() if arm in ranked]

    def used_in(self) -> dict[str, str]:
        """Arm → the experiments that have it, e.g. ``A B C``."""
        names: dict[str, list[str]] = {}
        for name in self.experiments:
            for arm in self.arms(name):
                names.setdefault(arm, []).append(name)
        return {arm: " ".join(found) for arm, found in names.items()}

    def wide(self, experiment: str, measure: str) -> pd.DataFrame:
        """Values of an experiment: one row for each of its seeds, one column for each arm."""
        return wide_of(self.values, measure, self.seeds(experiment))

    def endpoint(self, experiment: str) -> pd.DataFrame:
        """:meth:`wide` of the measure that the experiment is decided by."""
        return self.wide(experiment, self.experiments[experiment].endpoint)

    def compared_by(self, experiment: str) -> str:
        """The measure of most of an experiment's contrasts; its endpoint where it has none."""
        spec = self.experiments[experiment]
        return mode([spec.endpoint_of(contrast) for contrast in spec.contrasts] or [spec.endpoint])

    def gain(self, experiment: str, arm: str, measure: str) -> pd.Series:
        """An arm's paired differences to its baseline."""
        values = self.wide(experiment, measure)
        return (values[arm] - values[self.baseline(experiment, arm)]).dropna()

    def baseline(self, experiment: str, arm: str) -> str:
        """The arm that differences of ``arm`` are taken against."""
        return self.experiments[experiment].baseline_of(arm)

    def family(self, experiment: str) -> Family:
        """All arms of an experiment, each against its baseline."""
        arms = self.arms(experiment)
        baselines = {arm: self.baseline(experiment, arm) for arm in arms}
        pairs = [(arm, base) for arm, base in baselines.items() if base != arm and base in arms]
        found = Family(experiment, arms, pairs, self.planned(experiment))
        return found.declared_by(self.experiments[experiment])

    def planned(self, experiment: str) -> dict[str, int]:
        """Arm of an experiment → its number of planned runs."""
        return {arm: len(seeds) for arm, seeds in self.seeds(experiment).items()}

    def ranked(self, experiment: str) -> list[str]:
        """Arms of an experiment that can be called the best: those with every seed, and no control,
        whose scores (shuffled, random, or an oracle's) nobody would train with."""
        spec = self.experiments[experiment]
        return [arm for arm in spec.ranked(self.scale) if self.resolved[arm].control == "none"]

    def baselines(self, experiment: str) -> list[str]:
        """Arms of an experiment that others are compared with."""
        arms = self.arms(experiment)
        return list(dict.fromkeys(self.baseline(experiment, arm) for arm in arms))

    def treated(self, experiment: str) -> list[str]:
        """Arms of an experiment without its baselines."""
        bases = self.baselines(experiment)
        return [arm for arm in self.arms(experiment) if arm not in bases]

    def subjects(self, experiment: str) -> list[str]:
        """Arms that the experiment's sweep and contrasts are about, at this scale."""
        spec = self.experiments[experiment]
        named = [*spec.sweep.arms] if spec.sweep else []
        named += [arm for contrast in spec.contrasts for arm in contrast.arms]
        return [arm for arm in self.arms(experiment) if arm in named]

    def level(self, experiment: str, factor: str, arm: str) -> str:
        """An arm's level of one of the experiment's factors."""
        return str(self.resolved[arm].setting(self.experiments[experiment].factors[factor]))

    def sweep(self, experiment: str) -> SweepSpec:
        """What an experiment that sweeps a number says about it."""
        sweep = self.experiments[experiment].sweep
        assert sweep is not None, "asked of sweeps only"
        return sweep

    def judges(self, experiment: str) -> dict[str, list[str]]:
        """Judge of an experiment → its treated arms, by their AUC in training, the lowest first."""
        judges: dict[str, list[str]] = {}
        for arm in self.treated(experiment):
            judges.setdefault(self.resolved[arm].judge, []).append(arm)
        auc = self.wide(experiment, "judge_auc").mean()
        return dict(sorted(judges.items(), key=lambda item: auc[item[1]].mean()))

    def absent(self, experiment: str) -> list[str]:
        """Arms of an experiment's file that the scale does not train."""
        own = self.arms(experiment)
        return [arm for arm in self.experiments[experiment].arms if arm not in own]

    def facets(self, experiment: str) -> dict[str, list[str]]:
        """Level of the experiment's facet → its treated arms; one level ``""`` without a facet."""
        facet, arms = self.experiments[experiment].facet, self.treated(experiment)
        if facet is None:
            return {"": arms}
        levels: dict[str, list[str]] = {}
        for arm in arms:
            levels.setdefault(self.level(experiment, facet, arm), []).append(arm)
        return levels

    def colour(self, arm: str) -> str:
        """Of an arm's strategy or control; grey without a judge."""
        return plot.strategy_colours().get(self.resolved[arm].blend, plot.BASELINE_COLOUR)

    def labels(self, experiment: str) -> dict[str, str]:
        """Treated arm → its strategy or control, where that tells the arms of each facet apart, so
        that the facets of a figure share their labels; its name elsewhere."""
        facets = self.facets(experiment).values()
        blends = {arm: self.resolved[arm].blend for arms in facets for arm in arms}
        unique = all(len({blends[arm] for arm in arms}) == len(arms) for arms in facets)
        return blends if len(facets) > 1 and unique else {arm: words(arm) for arm in blends}

    def placements(self, experiment: str) -> list[Placement]:
        """Placements of the score among an experiment's treated arms."""
        found = {self.resolved[arm].placement for arm in self.treated(experiment)}
        return [placement for placement in PLACEMENTS if placement in found]

    @cached_property
    def starts(self) -> dict[str, dict[str, list[int]]]:
        """Arm → warm start of its runs → their seeds, see :func:`..starts.starts_of`."""
        return starts_of(self.collected.runs, self.resolved)

    @property
    def several_starts(self) -> bool:
        """Whether the runs that learn begin from different models."""
        return len({start for arm in self.all_arms() for start in self.starts.get(arm, {})}) > 1

    def groups(self) -> Iterator[tuple[dict[str, str], list[int]]]:
        """Every arm that learns, once for each warm start of its runs, with their seeds.

        The arm comes as the first cells of a table's row; the warm start is one of them where there
        are several. Means over runs of different warm starts say nothing of an arm.
        """
        for arm in self.all_arms():
            for start, seeds in self.starts.get(arm, {"": []}).items():
                yield {"arm": arm} | ({"warm_start": start} if self.several_starts else {}), seeds

    @cached_property
    def accuracy(self) -> pd.DataFrame:
        """Greedy validation accuracy: arm, seed, step, value."""
        frame = validation_frame(self.metrics)
        return frame[frame.measure == "acc"]

    @cached_property
    def seconds(self) -> pd.DataFrame:
        """Training time up to a step, without validation: arm, seed, step, seconds; 0 at step 0."""
        steps = series(self.metrics, "perf/time_per_step")[[*RUN, "step", "value"]]
        start = steps[RUN].drop_duplicates().assign(step=0, value=0.0)
        steps = pd.concat([start, steps]).sort_values([*RUN, "step"], ignore_index=True)
        return steps.assign(seconds=steps.groupby(RUN)["value"].cumsum()).drop(columns="value")

    def of(self, experiment: str, frame: pd.DataFrame) -> pd.DataFrame:
        """Rows of a frame that belong to the arms and seeds of an experiment."""
        runs = [(arm, seed) for arm, own in self.seeds(experiment).items() for seed in own]
        return frame.merge(pd.DataFrame(runs, columns=RUN).astype({"seed": "int64"}), on=RUN)

    def metric(self, experiment: str, *names: str) -> pd.DataFrame:
        """A metric over the steps, as :func:`refblend.study.runs.curves.series` gives it."""
        return series(self.of(experiment, self.metrics), *names)

    def origin(self, *experiments: str, arms: Collection[str] | None = None) -> str:
        """How many runs a figure of some experiments rests on, and which commits trained them.

        ``arms``: those that it shows, where it does not show all.
        """
        counts: dict[str, int] = {}
        planned: dict[str, int] = {}
        used = []
        for name in experiments:
            runs = self.of(name, self.collected.finished)
            runs = runs if arms is None else runs[runs.arm.isin(list(arms))]
            used.append(runs)
            for arm, seeds in self.seeds(name).items():
                if arms is None or arm in arms:
                    planned[arm] = max(planned.get(arm, 0), len(seeds))
                    counts[arm] = max(counts.get(arm, 0), int((runs.arm == arm).sum()))
        shown = replace(self.collected, runs=pd.concat(used)) if used else self.collected
        return f"{_counts(counts, planned)} Commit {commit_text(shown)}."


def _counts(counts: dict[str, int], planned: dict[str, int]) -> str:
    """``n = 5 seeds per arm.``, and the arms that have fewer than planned."""
    if not counts:
        return "No arms at this scale."
    text = f"n = {listed(planned.values())} seeds per arm"
    absent = [
        f"{arm} {count} of {planned[arm]}" for arm, count in counts.items() if count < planned[arm]
    ]
    return f"{text}; finished: {', '.join(absent)}, all of the others." if absent else f"{text}."


def learns(spec: ExperimentSpec) -> bool:
    """Whether its runs train to the end."""
    return not spec.exclusive


measures_costs = attrgetter("exclusive")
"""Whether its runs measure resources."""

leads = attrgetter("leads")
"""Whether the first page is about it."""

sweeps = attrgetter("sweep")
"""Whether it varies one number."""

chooses = attrgetter("choice")
"""Whether it decides which level of a factor is better."""


def varies_judge(spec: ExperimentSpec) -> bool:
    """Whether its arms have different judges."""
    return f"{SCORING}.model_path" in spec.factors.values()


def varies_overlap(spec: ExperimentSpec) -> bool:
    """Whether its arms score beside the log-prob passes, or before them."""
    return f"{SCORING}.overlap" in spec.factors.values()


def make_study(
    collected: Collected,
    experiments: Mapping[str, ExperimentSpec],
    scale: str,
    params: str | Path = "params",
    scoring: Path | None = None,
) -> M2Study:
    """A study of some experiments.

    Raises:
        StudyError: there is none, or a file's facts do not fit the configuration or one another.
    """
    folder = Path(params) / "study"
    if not experiments:
        raise StudyError(f"{folder}: no experiment of m2", "Give the right --params.")
    for name, spec in experiments.items():
        if spec.endpoint not in MEASURES:
            raise StudyError(
                f"{folder / name}.yaml: endpoint: {spec.endpoint} is not a measure",
                f"Choose one of {', '.join(MEASURES)}.",
            )
    return M2Study(
        collected, dict(experiments), resolve_arms(experiments, scale, params), scale, scoring
    )


def read_study(inputs: Inputs) -> M2Study:
    """Read the collected runs and what the target ``scoring`` left, if it did.

    Raises:
        StudyError: frames or experiment files cannot be used, or a contrast compares runs of
            different models.
    """
    scoring = inputs.results / "scoring"
    collected = read_collected(inputs.collected)
    refuse_mixed_models(collected.runs, inputs.experiments, inputs.scale)
    return make_study(
        collected,
        inputs.experiments,
        inputs.scale,
        inputs.params,
        scoring if (scoring / "tables").is_dir() else None,
    )


def level_name(level: str) -> str:
    """A level for a label."""
    return LEVEL_NAMES.get(level, words(level))


REPORT = Report("m2", "M2 ablations", read_study)
