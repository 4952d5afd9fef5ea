"""Recompute the verdicts and what the first page says from the runs' numbers, with other code.

Reads ``runs.csv``, ``runs.parquet``, ``verdicts.csv`` and the reports of a scale, and imports
pandas and scipy but nothing of the package: the measures, tests, adjustments and verdicts are
written again here, from their definitions in docs/explanation/statistics.md.

    python scripts/recompute.py results/smoke

Ends with status 1 and names every number that differs.
"""

import argparse
import re
import sys
from math import comb
from pathlib import Path

import numpy as np
import pandas as pd
from scipy import stats

VALIDATION = re.compile(r"val-core/(?!refblend/sanity/).+/acc/mean@1")
TOLERANCE = 2e-5
MOST = 100_000
"""Rearrangements beyond which as many are drawn, here and by the package."""


def endpoints(metrics: pd.DataFrame) -> pd.DataFrame:
    """One row per run (arm, seed), one column per endpoint."""
    accuracy = [name for name in metrics.columns if VALIDATION.fullmatch(name)]
    rows = {}
    for run, part in metrics.sort_values("step").groupby(["arm", "seed"]):
        row = {}
        for name in ("greedy", "sampled"):
            values = part.get(f"test/{name}", pd.Series(dtype=float)).dropna()
            row[f"test_{name}"] = values.iloc[-1] if len(values) else np.nan
        right = part.set_index("step").get("critic/acc/mean", pd.Series(dtype=float)).dropna()
        early = right[right.index <= right.index.max() / 3]
        row |= {"train_acc": right.mean(), "train_acc_third": early.mean()}
        curve = part.set_index("step")[accuracy].mean(axis=1).dropna()
        if len(curve):
            row |= curve_endpoints(curve.index.to_numpy(float), curve.to_numpy(float))
        rows[run] = row
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis(["arm", "seed"])


def curve_endpoints(steps: np.ndarray, values: np.ndarray) -> dict[str, float]:
    """What the greedy validation accuracy over the steps says."""
    found = {"val_final": values[-1], "val_best": values.max(), "val_gain": values[-1] - values[0]}
    found["val_drawdown"] = (np.maximum.accumulate(values) - values).max()
    found["val_auc"] = np.trapezoid(values, steps) / np.ptp(steps) if len(steps) > 1 else values[0]
    fine = np.linspace(steps[0], max(steps[0], steps[-1] / 3), 30_001)
    heights = np.interp(fine, steps, values)
    found["val_auc_third"] = (heights.sum() - (heights[0] + heights[-1]) / 2) / 30_000
    return found


def p_above(x: np.ndarray, y: np.ndarray, paired: bool) -> float:
    """One-sided permutation p of mean(x) > mean(y)."""
    if min(len(x), len(y)) < 2:
        return 1.0
    options = {"alternative": "greater", "n_resamples": MOST, "rng": np.random.default_rng(1)}
    if paired:
        test = stats.permutation_test((x - y,), np.mean, permutation_type="samples", **options)
    else:

        def welch(a: np.ndarray, b: np.ndarray, axis: int = -1) -> np.ndarray:
            with np.errstate(divide="ignore", invalid="ignore"):
                t = stats.ttest_ind(a, b, axis=axis, equal_var=False).statistic
            return np.nan_to_num(t, nan=0.0, posinf=np.inf, neginf=-np.inf)

        test = stats.permutation_test((x, y), welch, vectorized=True, **options)
    return float(test.pvalue)


def holm(p: np.ndarray) -> np.ndarray:
    """Holm's adjustment, by its definition."""
    order, m = np.argsort(p, kind="stable"), len(p)
    adjusted = np.empty(m)
    for rank, place in enumerate(order):
        adjusted[place] = min(1.0, max((m - i) * p[order[i]] for i in range(rank + 1)))
    return adjusted


def runs_compared(row: pd.Series, values: pd.DataFrame, paired: bool) -> list[np.ndarray]:
    """The endpoint of both arms of a row: of the seeds that both have, or of all runs."""
    arms = [
        values.xs(arm, level="arm")[row.endpoint].dropna()
        if arm in values.index.get_level_values("arm")
        else pd.Series(dtype=float)
        for arm in (row.treated, row.reference)
    ]
    if paired:
        return list(pd.concat(arms, axis=1, join="inner").dropna().to_numpy().T)
    return [arm.to_numpy() for arm in arms]


def compare(row: pd.Series, values: pd.DataFrame) -> dict[str, float]:
    """Estimate, interval and both p values of one row of the verdicts, and what pairing costs."""
    x, y = runs_compared(row, values, row.paired)
    found = {"n": min(len(x), len(y)), "estimate": np.nan, "low": np.nan, "high": np.nan}
    ways = 2 ** len(x) if row.paired else comb(len(x) + len(y), len(x))
    found["drawn"] = ways > MOST
    if found["n"]:
        found["estimate"] = x.mean() - y.mean()
    if found["n"] > 1:
        found["low"], found["high"] = interval(x, y, row.paired, 1 - row.alpha)
    found["p"] = min(1.0, 2 * min(p_above(x, y, row.paired), p_above(y, x, row.paired)))
    found["p_equivalence"] = max(
        p_above(x + row.margin, y, row.paired), p_above(y + row.margin, x, row.paired)
    )
    for paired in (True, False):
        found[f"width_{paired}"] = squared_width(*runs_compared(row, values, paired), paired)
    return found


def squared_width(x: np.ndarray, y: np.ndarray, paired: bool) -> float:
    """Of the 95 % interval; NaN below two runs of an arm."""
    if min(len(x), len(y)) < 2:
        return np.nan
    low, high = interval(x, y, paired, 0.95)
    return (high - low) ** 2


def interval(x: np.ndarray, y: np.ndarray, paired: bool, level: float) -> tuple[float, float]:
    """Student's interval of pairs, Welch's of independent arms."""
    if paired and np.std(x - y) == 0:
        return (x - y).mean(), (x - y).mean()
    if paired:
        return tuple(stats.t.interval(level, len(x) - 1, (x - y).mean(), stats.sem(x - y)))
    a, b = x.var(ddof=1) / len(x), y.var(ddof=1) / len(y)
    if a + b == 0:
        return x.mean() - y.mean(), x.mean() - y.mean()
    freedom = (a + b) ** 2 / (a**2 / (len(x) - 1) + b**2 / (len(y) - 1))
    return tuple(stats.t.interval(level, freedom, x.mean() - y.mean(), np.sqrt(a + b)))


def verdict(row: pd.Series, found: pd.Series) -> str:
    """The rule, from the adjusted p values."""
    if found.p_equivalence_adjusted <= row.alpha:
        return "equivalent"
    if found.p_adjusted > row.alpha:
        return "undecided"
    sign = -1 if row.endpoint == "val_drawdown" else 1
    return "better" if sign * found.estimate > 0 else "worse"


def runs_of(grid: pd.DataFrame) -> dict[str, list]:
    """The (arm, seed) of each experiment."""
    parts = grid.groupby("experiment")
    return {name: list(zip(part.arm, part.seed, strict=True)) for name, part in parts}


def recomputable(table: pd.DataFrame, values: pd.DataFrame) -> tuple[pd.DataFrame, list[str]]:
    """The verdicts of experiments whose endpoints are all known, and the other experiments."""
    left_out = table.experiment[~table.endpoint.isin(values.columns)].unique()
    return table[~table.experiment.isin(left_out)], list(left_out)


def recomputed(table: pd.DataFrame, values: pd.DataFrame, runs: dict[str, list]) -> pd.DataFrame:
    """What the verdicts must say, row by row; ``runs`` are the (arm, seed) of each experiment."""
    rows = [
        compare(row, values[values.index.isin(runs[row.experiment])]) for row in table.itertuples()
    ]
    found = pd.DataFrame(rows, index=table.index)
    family = [table.experiment, table.primary, table.added]
    for kind in ("p", "p_equivalence"):
        found[f"{kind}_adjusted"] = (
            found[kind].groupby(family).transform(lambda p: holm(p.to_numpy()))
        )
    # Paired, for an experiment, endpoint and round, if that gives the narrower intervals.
    alike = [table.experiment, table.endpoint, table.added]
    widths = {paired: found.pop(f"width_{paired}") for paired in (True, False)}
    total = {key: own.where(widths[True].notna()).groupby(alike) for key, own in widths.items()}
    without = widths[True].groupby(alike).transform("count").eq(0)
    found["paired"] = total[True].transform("sum") <= total[False].transform("sum")
    found["paired"] &= ~(without & widths[False].groupby(alike).transform("count").gt(0))
    found["family"] = found["drawn"].groupby(family).transform("size")
    found["family_drawn"] = found["drawn"].groupby(family).transform("any")
    # Of two samples of rearrangements one may lie beyond the level: by the table's own p there.
    found["verdict"] = [
        verdict(table.loc[i], (table if found.family_drawn[i] else found).loc[i])
        for i in table.index
    ]
    return found


def tolerance(column: str, found: pd.Series) -> float:
    """How far a number may be from its recomputed one.

    Where rearrangements are drawn, on both sides, it is five standard errors of the difference of
    two such p values, doubled for a two-sided one, and times the family where Holm multiplies.
    """
    adjusted = column.endswith("adjusted")
    if not (column.startswith("p") and (found.family_drawn if adjusted else found.drawn)):
        return TOLERANCE * max(1.0, abs(found[column]))
    times = found.family if adjusted else 1
    share = max(found[column] / times, 1 / MOST)
    return times * 2 * 5 * np.sqrt(share * 2 / MOST)


def differences(table: pd.DataFrame, found: pd.DataFrame) -> list[str]:
    """Every number of the table that is not the recomputed one."""
    problems = []
    for i, row in table.iterrows():
        name = f"{row.experiment}, {row.treated} − {row.reference}, {row.endpoint}"
        for column in found.columns.drop(["drawn", "family", "family_drawn"]):
            expected, given = found.loc[i, column], row[column]
            if column in ("verdict", "paired"):
                same = expected == given
            elif pd.isna(expected) or pd.isna(given):
                same = pd.isna(expected) and pd.isna(given)
            else:
                same = abs(expected - given) <= tolerance(column, found.loc[i])
            if not same:
                problems.append(f"{name}: {column} is {given}, recomputed {expected}")
    return problems


def page_problems(name: str, page: str, table: pd.DataFrame) -> list[str]:
    """Primary verdicts of a report's experiments that its headline table lacks or tells otherwise.

    ``table`` has the recomputed numbers of these verdicts.
    """
    rows = [line.split("|") for line in page.splitlines() if line.startswith("|")]
    problems = []
    for row in table.itertuples():
        pair = f"`{row.treated}` − `{row.reference}`"
        half = (row.high - row.low) / 2 if row.n > 2 else np.nan  # two seeds have no interval there
        shown = [cells for cells in rows if pair in cells and f"**{row.verdict}**" in cells]
        numbers = [row.estimate, half]
        if not any(agrees(cell, numbers) for cells in shown for cell in cells):
            problems.append(f"{name}: the page lacks {pair}, {numbers}, {row.verdict}")
    return problems


def agrees(text: str, numbers: list[float]) -> bool:
    """Whether a text gives these numbers, as rounded there; those that are NaN are left out."""
    known = [number for number in numbers if not np.isnan(number)]
    given = re.findall(r"[-+]?\d+\.?(\d*)", text), re.findall(r"[-+]?\d+\.?\d*", text)
    return len(given[1]) == len(known) and all(
        abs(float(said) - number) <= 0.501 * 10.0 ** -len(digits)
        for digits, said, number in zip(*given, known, strict=True)
    )


def pages(folder: Path, found: pd.DataFrame) -> list[str]:
    """What the pages of a scale's reports say otherwise than was recomputed."""
    problems = []
    for path in sorted(folder.glob("*/tables/verdicts.csv")):
        report = path.parents[1]
        own = found[found.experiment.isin(pd.read_csv(path).experiment) & found.primary]
        problems += page_problems(report.name, (report / "report.md").read_text(), own)
    return problems


def main(folder: Path) -> int:
    """Compare everything of one scale's results."""
    finished = pd.read_csv(folder / "runs.csv").query("status == 'finished'")[["arm", "seed"]]
    metrics = pd.read_parquet(folder / "runs.parquet")
    values = endpoints(metrics.merge(finished, on=["arm", "seed"]))
    table = pd.read_csv(folder / "verdicts.csv", keep_default_na=False, na_values=[""])
    table, left_out = recomputable(table, values)
    for name in left_out:
        print(f"{name}: left out, because it has contrasts by other measures than are recomputed")
    if table.empty:
        print(f"{folder}: no verdicts to recompute")
        return 0
    runs = runs_of(pd.read_csv(folder / "grid.tsv", sep="\t"))
    found = recomputed(table, values, runs)
    problems = differences(table, found)
    told = ["experiment", "treated", "reference", "primary"]
    problems += pages(folder, table[told].join(found))
    for problem in problems:
        print(problem)
    print(f"{folder}: {len(table)} verdicts from {len(values)} runs, {len(problems)} differences")
    return 1 if problems else 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folder", type=Path, help="results of a scale, e.g. results/cpu")
    sys.exit(main(parser.parse_args().folder))
