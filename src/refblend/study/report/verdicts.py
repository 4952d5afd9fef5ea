"""The table of verdicts: every declared contrast of some experiments, for all reports."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from refblend.errors import StudyError
from refblend.study.design.grid import read_grid
from refblend.study.design.measures import MEASURES, label
from refblend.study.design.spec import ExperimentSpec
from refblend.study.report.readable import estimate, write_csv
from refblend.study.report.registry import read_experiments
from refblend.study.report.shared import RunStudy, headline
from refblend.study.runs.archive import of_grid, read_archive
from refblend.study.runs.collect import used_models
from refblend.study.runs.measures import run_measures, wide, wide_of
from refblend.study.stats.verdicts import VERDICTS, Contrast, decide, is_paired

_TYPES = dict.fromkeys(("treated", "reference", "endpoint", "verdict"), "str")
_TYPES |= {"experiment": "str", "contrast": "str", "n": "int64", "seeds_needed": "Int64"}
_TYPES |= {"primary": "bool", "paired": "bool", "added": "int64"}
_NAMES = (
    "experiment", "contrast", "primary", "n", "estimate", "low", "high", "p", "p_adjusted",
    "verdict", "treated", "reference", "endpoint", "margin", "alpha", "paired", "p_equivalence",
    "p_equivalence_adjusted", "least_p_adjusted", "detectable", "seeds_needed", "added",
)  # fmt: skip
VERDICT_COLUMNS = {name: _TYPES.get(name, "float64") for name in _NAMES}
"""``estimate`` is treated − reference with its interval at 1 − α; ``detectable`` and
``seeds_needed`` are for a power of 80 % by Student's test, see
:class:`refblend.study.stats.verdicts.Outcome`."""


def verdicts(
    values: pd.DataFrame, experiments: Mapping[str, ExperimentSpec], scale: str
) -> pd.DataFrame:
    """One row per contrast whose arms the experiment has at the scale: :data:`VERDICT_COLUMNS`.

    The primary contrasts of an experiment are one family that is adjusted, its exploratory ones
    another, and so are those of each round that was added when the earlier ones were known.
    ``values`` are those of :func:`refblend.study.runs.measures.run_measures`.
    """
    rows: list[dict[str, Any]] = []
    for name, spec in experiments.items():
        stated = list(_stated(values, spec, scale))
        alike: dict[tuple[str, int], list[Contrast]] = {}
        for row, runs in stated:
            alike.setdefault((row["endpoint"], row["added"]), []).append(runs)
        paired = {key: is_paired(contrasts) for key, contrasts in alike.items()}
        families: dict[tuple[bool, int], list[tuple[dict[str, Any], Contrast]]] = {}
        for row, runs in stated:
            families.setdefault((not row["primary"], row["added"]), []).append((row, runs))
        for _, family in sorted(families.items()):
            kinds = [paired[row["endpoint"], row["added"]] for row, _ in family]
            outcomes = decide([runs for _, runs in family], kinds, spec.alpha)
            for (row, _), found in zip(family, outcomes, strict=True):
                own = {key: getattr(found, key) for key in VERDICT_COLUMNS if hasattr(found, key)}
                own |= {key: getattr(found.difference, key) for key in ("estimate", "low", "high")}
                rows.append(own | row | {"experiment": name, "alpha": spec.alpha})
    return pd.DataFrame(rows, columns=list(VERDICT_COLUMNS)).astype(VERDICT_COLUMNS)


def readable_verdicts(table: pd.DataFrame) -> pd.DataFrame:
    """Verdicts for readers: a row per contrast, the difference with its interval as one text."""
    rows = table.to_dict("records")
    return pd.DataFrame(
        {
            "experiment": table.experiment,
            "contrast": table.contrast,
            "treated − reference": [f"{row['treated']} − {row['reference']} " for row in rows],
            "by": table.endpoint.map(label),
            "n": [f"{row['n']} {'pairs' if row['paired'] else 'per arm'}" for row in rows],
            "difference": [estimate(row) for row in rows],
            "p Holm": table.p_adjusted.map("{:.3g}".format),
            "p Holm, equivalence": table.p_equivalence_adjusted.map("{:.3g}".format),
            "verdict": table.verdict,
        }
    )


def readable_of_one(table: pd.DataFrame) -> pd.DataFrame:
    """:func:`readable_verdicts` of one experiment, with the family that each is adjusted in."""
    shown = readable_verdicts(table).drop(columns="experiment")
    shown.insert(1, "primary", table.primary)
    if table.added.any():
        shown.insert(2, "added in round", [number or "–" for number in table.added])
    return shown


def declared(table: pd.DataFrame) -> list[dict[Any, Any]]:
    """Rows of a table of verdicts with their endpoints' labels, the primary contrasts first."""
    ordered = table.sort_values("primary", ascending=False, kind="stable")
    return ordered.assign(label=ordered.endpoint.map(label)).to_dict("records")


def headline_verdict(study: RunStudy, table: pd.DataFrame) -> dict[str, Any]:
    """Numbers for ``dvc metrics`` of the first primary contrast, see :func:`headline`."""
    rows = table[table.primary].to_dict("records")
    if not rows:
        return headline(study.collected, None)
    row = rows[0]
    own = wide(study.values, row["endpoint"], [row["treated"]])[row["treated"]].mean()
    numbers = {"mean": own, "diff": row["estimate"]}
    return headline(study.collected, numbers | {f"diff_{end}": row[end] for end in ("low", "high")})


def by_verdict(rows: list[dict[Any, Any]]) -> dict[str, Any]:
    """All rows as ``rows``, those of each verdict under its name, and how many are
    ``unreachable``: with their seeds no effect would be called better or worse."""
    return {name: [row for row in rows if row["verdict"] == name] for name in VERDICTS} | {
        "rows": rows,
        "unreachable": sum(row["least_p_adjusted"] > row["alpha"] for row in rows),
    }


def decided(table: pd.DataFrame) -> dict[str, Any]:
    """The primary contrasts :func:`by_verdict`, and what a first page says of them all."""
    rows = [row for row in declared(table) if row["primary"]]
    return by_verdict(rows) | {
        "margins": sorted({f"{row['margin']:g}" for row in rows}),
        "alphas": sorted({f"{row['alpha']:g}" for row in rows}),
        "exploratory": int((~table.primary).sum()),
    }


def decided_at(verdicts: pd.DataFrame, measure: str) -> dict[tuple[str, str], str]:
    """The verdicts on declared contrasts by a measure, by their arms; a primary one counts."""
    rows = verdicts[verdicts.endpoint == measure].sort_values("primary", kind="stable")
    arms = zip(rows.treated, rows.reference, strict=True)
    return dict(zip(arms, rows.verdict, strict=True))


def is_decided(
    pair: tuple[str, str], row: "pd.Series[Any]", declared: Mapping[tuple[str, str], str]
) -> bool:
    """Whether a forest fills the mark of an arm and its reference: by the verdict on a declared
    contrast of the two, else by that of the ``row`` with their difference."""
    return declared.get(pair, row["verdict"]) != "undecided"


def write_verdicts(scale: str, results: Path, params: Path, out: Path | None = None) -> Path:
    """Write ``verdicts.csv`` of all experiments of a scale's grid, from its archive alone.

    Raises:
        StudyError: grid or archive are missing, the archive lacks a run, or a contrast compares
            runs of different models (:func:`refuse_mixed_models`).
    """
    grid = read_grid(results / "grid.tsv")
    experiments = read_experiments(tuple(dict.fromkeys(grid.experiment)), params)
    archive = of_grid(read_archive(results), grid)
    refuse_mixed_models(archive.runs, experiments, scale)
    path = (out or results) / "verdicts.csv"
    write_csv(verdicts(run_measures(archive), experiments, scale), path)
    return path


def refuse_mixed_models(
    runs: pd.DataFrame, experiments: Mapping[str, ExperimentSpec], scale: str
) -> None:
    """Refuse contrasts whose arms were trained from different models of the same name.

    Rounding decides which warm start a machine makes, and what is learnt from one of them says
    nothing of an arm that was trained from another. Runs without a record of their models pass.

    Raises:
        StudyError: a contrast has such arms; it names the first.
    """
    models = used_models(runs)
    for name, spec in experiments.items():
        seeds = spec.seeds_by_arm(scale)
        for pair in (pair for contrast in spec.contrasts for pair in contrast.pairs.items()):
            own = [(arm, seed) for arm in pair for seed in seeds.get(arm, [])]
            used = models.merge(pd.DataFrame(own, columns=["arm", "seed"]), on=["arm", "seed"])
            first = used.drop_duplicates(["role", "digest"])
            mixed = first[first.role.duplicated(keep=False)].sort_values("role", kind="stable")
            if len(mixed):
                which = [f"{row.digest} ({row.arm}, seed {row.seed})" for row in mixed.itertuples()]
                raise StudyError(
                    f"{name}: {pair[0]} − {pair[1]} compares runs of different models, "
                    f"{mixed.role.iloc[0]} {' and '.join(which[:2])}",
                    "Give both arms seeds that were trained from the same models.",
                )


def read_verdicts(path: Path) -> pd.DataFrame:
    """The table that :func:`write_verdicts` wrote, or a report's own; no row without the file.

    Raises:
        StudyError: it cannot be read, or is no such table.
    """
    try:
        table = pd.read_csv(path, keep_default_na=False, na_values=[""])
        return table[list(VERDICT_COLUMNS)].astype(VERDICT_COLUMNS)
    except FileNotFoundError:
        return pd.DataFrame(columns=list(VERDICT_COLUMNS)).astype(VERDICT_COLUMNS)
    except (OSError, ValueError, KeyError) as error:
        reason = f"{path}: the verdicts cannot be read ({error})"
        raise StudyError(reason, "Rebuild them with `refblend study verdicts`.") from None


def _stated(
    values: pd.DataFrame, spec: ExperimentSpec, scale: str
) -> Iterator[tuple[dict[str, Any], Contrast]]:
    """What an experiment states of its contrasts at a scale, in the order of its file; the runs."""
    seeds = spec.seeds_by_arm(scale)
    for contrast in spec.contrasts:
        endpoint, margin = spec.endpoint_of(contrast), spec.margin_of(contrast)
        table = wide_of(values, endpoint, seeds)
        better = MEASURES[endpoint].higher_is_better
        assert better is not None, "the grid refuses measures without a direction"
        row = {"contrast": contrast.name, "primary": contrast.primary}
        row["added"] = contrast.round_at(scale)
        row |= {"endpoint": endpoint, "margin": margin}
        for treated, reference in spec.pairs_of(contrast, scale):
            runs = Contrast(table[treated], table[reference], margin, better)
            yield row | {"treated": treated, "reference": reference}, runs
