"""Which arms of M2 may be recommended, and the experiment that confirms a recommendation.

A candidate blends the score of the scale's own judge under the baseline's advantage estimator: both
are read from the arms' resolved configurations. Nobody would use a control (shuffled or random
scores), and another estimator would mix two questions. Arms whose runs were unhealthy in M2 are
dropped, with the reason.
"""

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from refblend.config.algorithm import RefQualityScoreConfig
from refblend.config.root import RefblendConfig
from refblend.documents import flatten
from refblend.errors import StudyError
from refblend.ppo.weights import STRATEGIES
from refblend.study.design.blocks import seed_ranges
from refblend.study.design.grid import resolve_arm
from refblend.study.design.spec import OVERLAY, ExperimentSpec, experiments_of, load_experiment
from refblend.study.runs.collect import Collected
from refblend.study.runs.curves import ENTROPY, course, validation_frame
from refblend.study.stats.statistics import entropy_collapse


@dataclass(frozen=True)
class Confirmation:
    """The experiment of M3 and the roles of its arms."""

    name: str
    experiment: ExperimentSpec
    scale: str
    challengers: Mapping[str, str | None]
    """Arms whose blends are tested on fresh seeds, each with its regime; null is that of the
    experiment's baseline, and comes first."""
    sources: tuple[str, ...]
    """Experiments whose arms may be recommended."""

    @property
    def baseline(self) -> str:
        """The arm without blending."""
        return self.experiment.baseline

    @property
    def challenger(self) -> str:
        """The one that is compared with the experiment's baseline."""
        return next(iter(self.challengers))

    @property
    def arms(self) -> tuple[str, ...]:
        """The arms of the scale in the order of the file."""
        return tuple(self.experiment.arms_of(self.scale))

    @property
    def seeds(self) -> frozenset[int]:
        """All seeds of its arms at the scale."""
        own = self.experiment.seeds_by_arm(self.scale).values()
        return frozenset(seed for seeds in own for seed in seeds)

    @property
    def pairs(self) -> tuple[tuple[str, str], ...]:
        """Every arm that is no baseline, with its own."""
        pairs = [(arm, self.experiment.baseline_of(arm)) for arm in self.arms]
        references = {reference for _, reference in pairs}
        return tuple(pair for pair in pairs if pair[0] not in references)

    @property
    def endpoint(self) -> str:
        """The measure of the tables and the guard; contrasts may name another."""
        return self.experiment.endpoint

    @property
    def contrasts(self) -> tuple[tuple[str, str], ...]:
        """Stated (arm, reference) beside the comparisons with the arms' baselines."""
        return tuple(
            pair
            for each in self.experiment.contrasts
            for pair in each.pairs.items()
            if set(pair) <= set(self.arms) and pair not in self.pairs
        )

    @property
    def comparisons(self) -> tuple[tuple[str, str], ...]:
        """Every (arm, reference) that is compared, those of challengers first."""
        pairs = (*self.pairs, *self.contrasts)
        return tuple(sorted(pairs, key=lambda pair: pair[0] not in self.challengers))


def load_confirmation(scale: str, params: str | Path = "params") -> Confirmation:
    """Read the one experiment of milestone M3, with its arms at a scale.

    Raises:
        StudyError: there is none or several, not exactly one arm with an overlay is compared with
            its baseline, or another one's baseline is not exactly one regime's.
        ConfigError: a file is missing or not YAML.
    """
    names = experiments_of("m3", params)
    folder = Path(params) / "study"
    if len(names) != 1:
        raise StudyError(
            f"{folder}: {len(names)} experiments have milestone m3: {', '.join(names) or 'none'}",
            "Exactly one confirms the recommendation: correct milestone in the others.",
        )
    experiment = load_experiment(folder / f"{names[0]}.yaml")
    challengers = _challengers(experiment, scale, folder / f"{names[0]}.yaml")
    sources = experiment.choose_from or [
        name
        for name in experiments_of("m2", params)
        if not load_experiment(folder / f"{name}.yaml").exclusive
    ]
    return Confirmation(names[0], experiment, scale, challengers, tuple(sources))


def _challengers(experiment: ExperimentSpec, scale: str, path: Path) -> dict[str, str | None]:
    """The arms of a scale with an overlay, the experiment's own first, each with its regime."""
    regimes: dict[str, str | None] = {base: name for name, base in experiment.regimes.items()}
    regimes[experiment.baseline] = None
    chosen = [name for name, own in experiment.arms_of(scale).items() if OVERLAY in own]
    against = {arm: experiment.baseline_of(arm) for arm in chosen}
    clear = (
        list(against.values()).count(experiment.baseline) == 1
        and len(set(against.values())) == len(chosen)
        and set(against.values()) <= set(regimes)
        and not set(chosen) & set(regimes)
    )
    if not clear:
        named = ", ".join(f"{arm} against {base}" for arm, base in against.items()) or "none"
        raise StudyError(
            f"{path}: arms with an {OVERLAY}: {named}",
            f"Give {OVERLAY} to one arm that is compared with {experiment.baseline}, and to at "
            "most one for the baseline of each of the regimes.",
        )
    first = sorted(against, key=lambda arm: against[arm] != experiment.baseline)
    return {arm: regimes[against[arm]] for arm in first}


NEVER = ("overlength", "oom", "nonfinite", "judge_error", "reward_error")
"""Incidents that no run of a candidate may have."""

MAX_INVALID = 0.05
"""Largest share of judge scores without a valid verdict, mean over a run's steps; or twice the
median over all runs with a judge, whichever is larger: where the judge is often unreadable, as at
scale smoke, that says nothing about an arm."""


@dataclass(frozen=True)
class Candidate:
    """An arm that may be recommended."""

    arm: str
    config: RefblendConfig
    departures: Mapping[str, Any]
    """Keys of ``algorithm`` whose values differ from ``params/ppo.yaml`` and the scale's, and the
    arm's values."""
    place: int
    """Position in the experiment files."""

    @property
    def parameters(self) -> int:
        """How many parameters its strategy has; 0 for a user's, which may read anything."""
        strategy = STRATEGIES.get(self.config.algorithm.ref_quality_score.strategy)
        return len(strategy.parameters) if strategy else 0

    @property
    def simplicity(self) -> tuple[int, int, int]:
        """Smaller is simpler: departures from the defaults, parameters, position in the files."""
        return len(self.departures), self.parameters, self.place


@dataclass(frozen=True)
class Pool:
    """The baseline, the candidates from the simplest on, and what was dropped and why."""

    collected: Collected
    """The runs that the choice may rest on: those of seeds that M3 does not confirm on."""
    baseline: str
    off: RefblendConfig
    candidates: tuple[Candidate, ...]
    dropped: Mapping[str, str]
    invalid_rate: float
    """Median share of invalid scores over the runs with a judge; 0 where there is none."""


def read_pool(
    collected: Collected, scale: str, params: str | Path = "params", regime: str | None = None
) -> Pool:
    """Candidates among M2's arms at a scale, of the experiments that the confirming one names.

    Of a regime: among the arms of the experiments that declare it, with its baseline. Seeds that
    the confirming experiment uses count as not collected.

    Raises:
        StudyError: the experiments have several baselines, or the baseline was not run.
        ConfigError: an arm's configuration is not acceptable.
    """
    baseline, arms, illustrating = _declared(scale, params, regime)
    collected = without_seeds(collected, load_confirmation(scale, params).seeds)
    if baseline not in set(collected.runs.arm):
        raise StudyError(
            f"the baseline {baseline} is not among the collected runs", "Collect the runs of M2."
        )
    defaults = _flat(resolve_arm({}, scale, params))
    off = resolve_arm(arms.pop(baseline), scale, params)
    usual = usual_invalid_rate(collected)
    candidates, dropped = [], {}
    for place, (arm, overrides) in enumerate(arms.items()):
        config = resolve_arm(overrides, scale, params)
        reason = (
            unsuitable(config, off)
            or illustrating.get(arm, "")
            or unhealthy(collected, arm, max(MAX_INVALID, 2 * usual))
        )
        if reason:
            dropped[arm] = reason
            continue
        departures = {
            key: value for key, value in _flat(config).items() if value != defaults.get(key)
        }
        candidates.append(Candidate(arm, config, departures, place))
    ordered = tuple(sorted(candidates, key=lambda candidate: candidate.simplicity))
    return Pool(collected, baseline, off, ordered, dropped, usual)


def without_seeds(collected: Collected, seeds: Container[int]) -> Collected:
    """The frames without the runs of some seeds."""
    frames = (collected.runs, collected.metrics, collected.responses)
    return Collected(*(frame[[seed not in seeds for seed in frame.seed]] for frame in frames))


def regimes_at(scale: str, params: str | Path = "params") -> list[str]:
    """Regimes that M2's experiments declare and run at a scale, without the confirmed one."""
    main = load_confirmation(scale, params).baseline
    return [
        name
        for spec in map(load_experiment, _files(params, experiments_of("m2", params)))
        for name, baseline in spec.regimes.items()
        if baseline != main and baseline in spec.arms_of(scale) and spec.usual_seeds(scale)
    ]


def check_scale(collected: Collected, scale: str, params: str | Path = "params") -> None:
    """Refuse (StudyError) frames none of whose runs M2's experiments plan at the scale."""
    specs = [load_experiment(path) for path in _files(params, experiments_of("m2", params))]
    planned = {
        (arm, seed)
        for spec in specs
        for arm, seeds in spec.seeds_by_arm(scale).items()
        for seed in seeds
    }
    found = set(zip(collected.runs.arm, collected.runs.seed, strict=True))
    if found and not found & planned:
        raise StudyError(
            f"no collected run (seeds {seed_ranges({seed for _, seed in found})}) is one that M2 "
            f"plans at scale {scale}",
            "Give the frames of that scale, or the name of theirs.",
        )


def _files(params: str | Path, names: Sequence[str]) -> list[Path]:
    return [Path(params) / "study" / f"{name}.yaml" for name in names]


def _declared(
    scale: str, params: str | Path, regime: str | None
) -> tuple[str, dict[str, dict[str, Any]], dict[str, str]]:
    """The one baseline of several experiments, the overrides of all their arms, and what is said of
    those that only illustrate: that no experiment ranks them."""
    experiments = load_confirmation(scale, params).sources
    if regime is not None:
        experiments = tuple(experiments_of("m2", params))
    specs = [load_experiment(path) for path in _files(params, experiments)]
    # A scale may have no seeds for some of them.
    specs = [spec for spec in specs if spec.usual_seeds(scale)]
    baselines = sorted({spec.baseline for spec in specs})
    if regime is not None:
        specs = [spec for spec in specs if regime in spec.regimes]
        baselines = sorted({spec.regimes[regime] for spec in specs})
        if not specs:
            raise StudyError(
                f"no experiment of {', '.join(experiments)} has regime {regime} at scale {scale}",
                f"Name one of {', '.join(regimes_at(scale, params)) or 'none'}.",
            )
    if not specs:
        raise StudyError(
            f"experiments {', '.join(experiments)} have no seeds at scale {scale}",
            f"Add seeds.{scale} to one of them.",
        )
    if len(baselines) != 1:
        raise StudyError(
            f"experiments {', '.join(experiments)} have several baselines: {', '.join(baselines)}",
            "Choose from experiments with the same baseline.",
        )
    baseline = baselines[0]
    arms: dict[str, dict[str, Any]] = {}
    for spec in specs:
        for arm, overrides in spec.arms_of(scale).items():
            arms.setdefault(arm, overrides)
    ranked = {arm for spec in specs for arm in spec.ranked(scale, baseline)}
    illustrating = {
        arm: f"only illustrates: {len(seeds)} seeds of {len(spec.usual_seeds(scale))}"
        for spec in specs
        for arm, seeds in spec.seeds_by_arm(scale).items()
        if arm not in ranked
    }
    return baseline, arms, illustrating


def unsuitable(config: RefblendConfig, off: RefblendConfig) -> str:
    """Why a configuration is not a candidate; empty if it is one."""
    blend: RefQualityScoreConfig = config.algorithm.ref_quality_score
    if other := _outside_the_blend(config, off):
        return f"differs from the baseline in {', '.join(other)}, not only in the blend"
    if config.algorithm.adv_estimator != off.algorithm.adv_estimator:
        return f"another advantage estimator than the baseline's: {config.algorithm.adv_estimator}"
    if not blend.enable:
        return "does not blend"
    if blend.scoring.control != "none":
        return f"a control: {blend.scoring.control} scores"
    if blend.strategy == "replay":
        return "replays another run's weights"
    if blend.scoring.model_path != off.algorithm.ref_quality_score.scoring.model_path:
        return "another judge than the scale's"
    return ""


def _outside_the_blend(config: RefblendConfig, off: RefblendConfig) -> list[str]:
    """Keys outside ``ref_quality_score``, the estimator and the run in which two differ."""
    apart = ("algorithm.ref_quality_score.", "algorithm.adv_estimator", "critic.", "trainer.")
    mine, other = (flatten(each.model_dump(mode="json")) for each in (config, off))
    return [key for key in mine if not key.startswith(apart) and mine[key] != other.get(key)]


def unhealthy(collected: Collected, arm: str, max_invalid: float = MAX_INVALID) -> str:
    """What speaks against an arm in its runs, or that it has none; empty if nothing does.

    That is a run that did not finish, an incident of :data:`NEVER`, more than ``max_invalid`` of
    the judge's scores invalid, or a collapse of the entropy (docs/explanation/statistics.md).
    """
    runs = collected.runs[collected.runs.arm == arm]
    if runs.empty:
        return "has no runs on seeds that M3 leaves unused"
    failed = runs[runs.status != "finished"]
    if len(failed):
        return ", ".join(f"seed {row.seed} {row.status}" for row in failed.itertuples())
    metrics = collected.metrics[collected.metrics.arm == arm]
    for kind in NEVER:
        count = metrics[metrics.metric == f"incidents/{kind}"]["value"].sum()
        if count > 0:
            return f"{count:.0f} {kind} incidents"
    for seed, part in metrics.groupby("seed"):
        invalid = invalid_rate(part)
        if invalid > max_invalid:
            return f"seed {seed}: {invalid:.1%} of the judge's scores are invalid"
        if entropy_collapse(course(part, ENTROPY)) is not None:
            return f"seed {seed}: the entropy collapsed"
    return ""


def invalid_rate(metrics: pd.DataFrame) -> float:
    """Share of the judge's scores that are invalid, mean over the steps; NaN without a judge."""
    valid = metrics[metrics.metric == "actor/ref_quality/valid_rate"]["value"]
    return 1.0 - float(valid.mean()) if len(valid) else float("nan")


def usual_invalid_rate(collected: Collected) -> float:
    """Median share of invalid scores over the runs with a judge; 0 if there is none."""
    valid = collected.metrics[collected.metrics.metric == "actor/ref_quality/valid_rate"]
    rates = 1.0 - valid.groupby(["arm", "seed"])["value"].mean()
    return float(rates.median()) if len(rates) else 0.0


def late_accuracy(collected: Collected) -> pd.DataFrame:
    """Mean greedy validation accuracy over the second half of training, of finished runs.

    Validations from half of the run's last validation step on are averaged: the last one alone is
    a single measurement on a few hundred answers, and the area under the whole curve includes the
    start, which all arms share.

    Returns:
        Columns arm, seed, value.
    """
    frame = validation_frame(collected.counted_metrics)
    frame = frame[frame.measure == "acc"]
    if frame.empty:
        return frame[["arm", "seed", "value"]]
    last = frame.groupby(["arm", "seed"])["step"].transform("max")
    late = frame[frame.step >= last / 2]
    return late.groupby(["arm", "seed"], as_index=False)["value"].mean()


def _flat(config: RefblendConfig) -> dict[str, Any]:
    """Dotted keys of ``algorithm`` with their values."""
    return flatten({"algorithm": config.algorithm.model_dump(mode="json")})
