"""What a user writes to declare an experiment: ``params/study/*.yaml``."""

import json
import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, cast

from pydantic import AfterValidator, BeforeValidator, Field, JsonValue, RootModel, model_validator

from refblend.config.base import PositiveFloat, PositiveInt, Section
from refblend.config.loading import checked, read_yaml
from refblend.documents import flatten
from refblend.errors import ConfigError, StudyError
from refblend.study.design.measures import MEASURES, ORDERED, PHYSICAL
from refblend.study.design.names import GRID_OF, REPORTS, SERIES, Milestone, Scale

Value = TypeVar("Value")
ArmName = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]*$")]
FactorName = ArmName
SEED_RANGE = r"^(\d{1,9})-(\d{1,9})$"
MOST_SEEDS = 1000
"""Seeds that a range may have."""


def _written_out(seeds: Any) -> Any:
    """A range such as ``11-26`` as the list of its seeds; anything else as it is."""
    found = re.fullmatch(SEED_RANGE, seeds) if isinstance(seeds, str) else None
    if found is None:
        return seeds
    first, last = int(found[1]), int(found[2])
    if not 0 <= last - first < MOST_SEEDS:
        raise ValueError(f"{seeds} is not a range of 1 to {MOST_SEEDS} seeds")
    return list(range(first, last + 1))


def _ascending(seeds: list[int]) -> list[int]:
    if repeated := [str(seed) for seed, count in Counter(seeds).items() if count > 1]:
        raise ValueError(f"it repeats seed {', '.join(repeated)}")
    return sorted(seeds)


def _comparable(measure: str) -> str:
    if measure not in ORDERED:
        known = ", ".join(ORDERED)
        raise ValueError(f"it is not a measure that can be better or worse, as {known}")
    return measure


Seed = Annotated[int, Field(ge=0, lt=10**18)]
SeedRange = Annotated[str, Field(pattern=SEED_RANGE)]
SeedList = Annotated[list[Seed], Field(min_length=1)]
Seeds = Annotated[
    SeedList,
    AfterValidator(_ascending),
    BeforeValidator(_written_out, json_schema_input_type=SeedList | SeedRange),
]
"""A list, or a range with both its ends, such as ``11-26``."""
Endpoint = Annotated[str, AfterValidator(_comparable)]
DottedKey = Annotated[str, Field(pattern=r"^[A-Za-z0-9_]+(\.[A-Za-z0-9_]+)*$")]
Overrides = Annotated[
    dict[DottedKey, JsonValue],
    BeforeValidator(lambda tree: flatten(tree) if isinstance(tree, dict) else tree),
]
"""Dotted keys and their values; nested mappings mean the same, and what comes later wins."""
OVERLAY = "overlay"
"""Reserved key among an arm's overrides: a configuration file that may not exist yet."""


class ContrastSpec(Section):
    """Comparisons between arms that the question needs beyond those with the baseline."""

    name: str
    """What is compared, as tables show it; several entries may share a name."""
    pairs: dict[ArmName, ArmName]
    """Treated arm: reference arm. Differences are treated − reference."""
    primary: bool = False
    """It answers the experiment's question; the others are exploratory, a family of their own."""
    endpoint: Endpoint | None = None
    """The measure that it is decided by; null: the experiment's."""
    margin: PositiveFloat | None = None
    """Null: the experiment's. A measure in other units needs a margin of its own."""
    added_at: dict[Scale, PositiveInt] = Field(default={})
    """The scales at which it was declared when the experiment's verdicts were known, and in which
    round of additions. There it is exploratory, and adjusted with those of its round alone, so that
    no earlier verdict moves."""

    def _misfits(self) -> Iterator[str]:
        if self.primary and self.added_at:
            yield (
                f"{self.name} was added at {', '.join(self.added_at)} and cannot be primary: "
                "remove primary or added_at"
            )
        if itself := [arm for arm, reference in self.pairs.items() if arm == reference]:
            yield f"{self.name} compares {itself[0]} with itself: name another reference"

    def round_at(self, scale: str) -> int:
        """The round in which it was added at a scale; 0: declared from the start."""
        return _of(scale, self.added_at, 0)

    @property
    def arms(self) -> list[str]:
        """All arms that it compares, as often as it names them."""
        return [*self.pairs, *self.pairs.values()]


class SweepSpec(Section):
    """One parameter at several levels, everything else equal."""

    key: str
    """Dotted key of the configuration; every arm has another number there."""
    rule: Literal["knee", "pivot"]
    """How a level is chosen (docs/explanation/statistics.md)."""
    arms: list[ArmName]


class ExperimentSpec(Section):
    """One file of ``params/study``: a question, and the arms and seeds that answer it.

    All that reports know about an experiment stands here or follows from its arms' resolved
    configurations; nothing follows from its letters or the names of its arms.
    """

    title: str
    """Heading in the reports."""
    question: str
    """What the experiment asks, in a sentence; shown in the reports."""
    milestone: Milestone = "m2"
    """The report that shows it; ``series``: none yet, its runs are still being made."""
    milestone_at: dict[Scale, Milestone] = Field(default={})
    """Another report at a scale; ``series``: the experiment is a target of its own there."""
    prediction: str | None = None
    """What was expected before the first run, and the measure by which it is tested."""
    dose: bool = False
    """Also analyse outcomes over all arms as a response to their runs' mean weight."""
    leads: bool = False
    """The report's first page names its best arm, and its runs show how the weight behaves."""
    baseline: ArmName
    """The reference arm of paired differences."""
    baselines: dict[ArmName, ArmName] = Field(default={})
    """Arms with another baseline than ``baseline``."""
    regimes: dict[FactorName, ArmName] = Field(default={})
    """Settings that get a recommendation each: name → the arm without a blend there."""
    endpoint: Endpoint = "test_greedy"
    """The measure that the headline, the rules and the contrasts' summary read."""
    alpha: Annotated[float, Field(gt=0, lt=0.5)] = 0.05
    """Level of the verdicts on the contrasts, for all primary ones together (Holm)."""
    margin: PositiveFloat = 0.02
    """Arms whose difference lies within ± this are equivalent."""
    effect: PositiveFloat = 0.03
    """Smallest difference of interest, for which ``refblend study power`` counts seeds."""
    factors: dict[FactorName, str] = Field(default={})
    """What differs between the arms: name → dotted key, read from each arm's configuration."""
    facet: FactorName | None = None
    """The factor whose levels are shown and compared separately."""
    contrasts: list[ContrastSpec] = Field(default=[])
    sweep: SweepSpec | None = None
    exclusive: bool = False
    """Measures resources: its jobs run alone on the machine, and no actor is evaluated."""
    test: str = "data/{scale}/test.parquet"
    """Prompt file that its trained actors are tested on; needed beside ``data.train_files``."""
    common: Overrides = Field(default={})
    """Dotted overrides of every arm."""
    seeds: dict[Scale, Seeds]
    """Seeds of the arms at each scale."""
    arm_seeds: dict[Scale, dict[ArmName, Seeds]] = Field(default={})
    """Arms with other seeds than these at a scale: more where several contrasts share one as their
    reference, fewer where an arm illustrates and decides nothing. Pairs are what two arms share."""
    arms_at: dict[Scale, list[ArmName]] = Field(default={})
    """The arms of scales that run only some."""
    at: dict[Scale, dict[ArmName, Overrides]] = Field(default={})
    """Further overrides of arms at a scale, e.g. GPUs that others do not have."""
    arms: dict[ArmName, Overrides]
    """Each arm's dotted overrides of ``params/ppo.yaml``. In texts ``{scale}`` is filled in;
    nested mappings mean the same, and what comes later wins. The reserved key ``overlay`` names a
    configuration file laid over the scale's."""

    def _misfits(self) -> Iterator[str]:
        if problems := list(self._problems()):
            yield f"{'; '.join(problems)}: correct every one"

    @model_validator(mode="after")
    def _grids_are_shared(self) -> "ExperimentSpec":
        for scale, other in ({} if self.exclusive else GRID_OF).items():
            for key in ("milestone_at", "seeds", "arm_seeds", "arms_at", "at"):
                by_scale = getattr(self, key)
                if other in by_scale:
                    by_scale.setdefault(scale, by_scale[other])
        return self

    def _problems(self) -> Iterator[str]:
        """Names that do not exist, and settings that do not go together."""
        named = {
            "baseline": [self.baseline],
            "regimes": list(self.regimes.values()),
            "baselines": [*self.baselines, *self.baselines.values()],
            **{f"arms_at.{scale}": arms for scale, arms in self.arms_at.items()},
            **{f"at.{scale}": list(arms) for scale, arms in self.at.items()},
            **{f"arm_seeds.{scale}": list(arms) for scale, arms in self.arm_seeds.items()},
            **{
                f"contrasts.{place}.pairs": contrast.arms
                for place, contrast in enumerate(self.contrasts)
            },
            "sweep.arms": self.sweep.arms if self.sweep else [],
        }
        for key, arms in named.items():
            if unknown := [arm for arm in arms if arm not in self.arms]:
                yield f"{key} names {', '.join(unknown)}, which is not among the arms"
        for scale, arms in self.arms_at.items():
            for arm in arms:
                if self.baseline_of(arm) not in arms:
                    yield f"arms_at.{scale} has {arm} without its baseline {self.baseline_of(arm)}"
        if not ORDERED[self.endpoint]:
            yield f"endpoint: of {self.endpoint} less is better, which only contrasts may have"
        for place, contrast in enumerate(self.contrasts):
            endpoint = self.endpoint_of(contrast)
            if MEASURES[endpoint].unit in PHYSICAL and not contrast.margin:
                yield f"contrasts.{place} by {endpoint} has no margin of its own, in its units"
        for arm, overrides in self.arms.items():
            if not isinstance(overrides.get(OVERLAY, ""), str):
                yield f"arms.{arm}.{OVERLAY} is not a path"
        for scale, arms_seeds in self.arm_seeds.items():
            if scale not in self.seeds:
                yield f"arm_seeds.{scale} has no seeds.{scale} beside it"
            elif absent := [arm for arm in arms_seeds if arm not in self.arms_of(scale)]:
                yield f"arm_seeds.{scale} names {', '.join(absent)}, which arms_at.{scale} lacks"
        resolved = [arm for scale in self.seeds for arm in self.arms_of(scale).values()]
        own = any("data.train_files" in arm for arm in resolved)
        if own and not self.exclusive and "test" not in self.model_fields_set:
            yield f"data.train_files is its own, but the test would be {self.test}: name `test`"
        if self.facet is not None and self.facet not in self.factors:
            yield f"facet is {self.facet}, which is not among the factors"

    def milestone_of(self, scale: str) -> Milestone | None:
        """The milestone that reports it at a scale; null: it has no seeds there."""
        return _of(scale, self.milestone_at, self.milestone) if scale in self.seeds else None

    def baseline_of(self, arm: str) -> str:
        """The arm with which ``arm`` is compared."""
        return self.baselines.get(arm, self.baseline)

    def endpoint_of(self, contrast: ContrastSpec) -> str:
        """The measure that a contrast is decided by."""
        return contrast.endpoint or self.endpoint

    def margin_of(self, contrast: ContrastSpec) -> float:
        """Within ± this its arms are equivalent."""
        return contrast.margin or self.margin

    def pairs_of(self, contrast: ContrastSpec, scale: str) -> list[tuple[str, str]]:
        """A contrast's (treated, reference) of which a scale has both."""
        present = self.arms_of(scale)
        return [pair for pair in contrast.pairs.items() if set(pair) <= present.keys()]

    def usual_seeds(self, scale: str) -> list[int]:
        """Seeds of the arms of a scale that have none of their own, ascending."""
        return _of(scale, self.seeds, [])

    def seeds_by_arm(self, scale: str) -> dict[str, list[int]]:
        """The arms of a scale, each with its seeds, ascending."""
        own = _of(scale, self.arm_seeds, {})
        return {arm: own.get(arm, self.usual_seeds(scale)) for arm in self.arms_of(scale)}

    def limited(self, most: Mapping[Scale, int]) -> "ExperimentSpec":
        """The experiment with at most so many seeds of an arm at a scale, the lowest ones."""
        seeds = {scale: own[: most.get(scale)] for scale, own in self.seeds.items()}
        arm_seeds = {
            scale: {arm: own[: most.get(scale)] for arm, own in arms.items()}
            for scale, arms in self.arm_seeds.items()
        }
        return self.model_copy(update={"seeds": seeds, "arm_seeds": arm_seeds})

    def ranked(self, scale: str) -> list[str]:
        """Arms of a scale that can be called the best.

        Those with every usual seed that the baseline has, or, if none of its seeds is usual, with
        all of them. An arm with fewer, which only illustrates, would too often be ahead by chance.
        """
        seeds, usual = self.seeds_by_arm(scale), set(self.usual_seeds(scale))
        own = set(seeds.get(self.baseline, usual))
        wanted = usual & own or own
        return [arm for arm, trained in seeds.items() if wanted <= set(trained)]

    def arms_of(self, scale: str) -> dict[str, dict[str, Any]]:
        """Arms of a scale in declared order, each with its overrides, ``common`` included."""
        chosen = _of(scale, self.arms_at, list(self.arms))
        further = _of(scale, self.at, {})
        found = {
            arm: self.common | overrides | further.get(arm, {})
            for arm, overrides in self.arms.items()
            if arm in chosen
        }
        return json.loads(json.dumps(found).replace("{scale}", scale))


class SeedLimits(RootModel[dict[Scale, PositiveInt]]):
    """``params/seeds.yaml``: the most seeds of an arm at a scale."""


def _of(scale: str, by_scale: Mapping[Scale, Value], otherwise: Value) -> Value:
    return cast(Mapping[str, Value], by_scale).get(scale, otherwise)


def load_experiment(path: str | Path) -> ExperimentSpec:
    """Read and check one experiment file; StudyError for its keys and values, else ConfigError."""
    path = Path(path)
    if not path.exists():
        known = ", ".join(sorted(each.stem for each in path.parent.glob("*.yaml"))) or "none"
        raise StudyError(f"{path}: no such experiment", f"The names here are: {known}.")
    if path.stem in {*REPORTS, SERIES}:
        raise StudyError(f"{path}: a report or a series has this name", "Rename the file.")
    limits, values = path.parents[1] / "seeds.yaml", read_yaml(path)
    try:
        spec = checked(ExperimentSpec, values, f"{path}: ")
    except ConfigError as found:
        raise StudyError(found.reason, found.remedy) from None
    most = read_yaml(limits) if limits.exists() else {}
    return spec.limited(checked(SeedLimits, most, f"{limits}: ").root)


def load_experiments(
    params: str | Path = "params", names: Collection[str] | None = None
) -> dict[str, ExperimentSpec]:
    """Experiments of ``<params>/study`` by name, all or some; errors of :func:`load_experiment`."""
    folder = Path(params) / "study"
    if names is None:
        names = sorted(path.stem for path in folder.glob("*.yaml"))
        if not names:
            raise StudyError(f"no experiments in {params}/study", "Copy refblend's params here.")
    return {name: load_experiment(folder / f"{name}.yaml") for name in names}


def experiments_of(milestone: str, params: str | Path, scale: str) -> list[str]:
    """Names of the experiments that a milestone reports; errors of :func:`load_experiment`."""
    return [
        name
        for name, spec in load_experiments(params).items()
        if spec.milestone_of(scale) == milestone
    ]
