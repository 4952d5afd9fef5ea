"""The report on scoring: what `refblend judge robustness`, `attacks` and `quality` measured."""

from pathlib import Path
from typing import Any

import pandas as pd

from refblend.embedded.recipe import STRENGTHS
from refblend.errors import StudyError
from refblend.files import read_record
from refblend.study.report import style as plot
from refblend.study.report.figures import Tables, reliability
from refblend.study.report.readable import words

ARM = ("experiment", "arm")
ROBUSTNESS_COLUMNS = (
    *ARM, "responses", "overlength", "nonzero_rate", "valid_rate", "fallback_rate", "auc",
    "auc_all", "ece", "tokens_per_response", "new_tokens_per_response", "compact_rate",
    "clipped_rate", "token_path_rate", "judge_error", "score_mean", "score_std",
)  # fmt: skip
LENGTH_COLUMNS = (
    *ARM, "length", "responses", "overlength", "nonzero_rate", "valid_rate", "compact_rate",
    "clipped_rate", "auc",
)  # fmt: skip
ATTACK_COLUMNS = (
    "attack", "family", "n", "neutral_mean", "attacked_mean", "lift", "low", "high", "valid_rate",
    "clipped_rate", "overlength", "structure_changed",
)  # fmt: skip
JUDGE = ("model", "form")
JUDGE_COLUMNS = (
    *JUDGE, "count", "right", "worked", "auc", "auc_worked", "auc_expected", "auc_expected_worked",
    "auc_within", "auc_within_low", "auc_within_high", "ece", "ece_expected", "valid_rate",
    "nonzero_rate", "valid", "score_mean", "score_std", "mean_absolute_error", "length_correlation",
    "distinct_scores", "new_tokens",
)  # fmt: skip
BIN_COLUMNS = (*JUDGE, "kind", "low", "high", "count", "score", "accuracy")
TITLES = {"D1": "D1: prompt", "D2": "D2: new tokens", "D3": "D3: clipping"}


def read_tables(results: Path, models: Path) -> Tables:
    """All tables of a scale's measurements; StudyError if a file is missing, or no report."""
    measured = {}
    for name, key in (("robustness", "arms"), ("attacks", "attacks")):
        path = results / "scoring" / "measurements" / f"{name}.json"
        measured[name] = _read(path)
        if key not in measured[name]:
            raise StudyError(f"{path}: has no {key!r}", "Give a report of `refblend judge`.")
    forms = [
        {"model": f"judge_{name}", "form": form} | record
        for name in STRENGTHS
        for form, record in sorted(
            _read(models / "quality" / f"judge_{name}.json").get("forms", {}).items(),
            key=lambda item: item[0] != "few_shot",
        )
    ]
    bins = [{name: f[name] for name in JUDGE} | b for f in forms for b in f.get("reliability", [])]
    attacks = _frame(measured["attacks"]["attacks"], ATTACK_COLUMNS)
    return {
        "robustness": _frame(measured["robustness"]["arms"], ROBUSTNESS_COLUMNS),
        "robustness_by_length": _frame(measured["robustness"]["by_length"], LENGTH_COLUMNS),
        "attacks": attacks.sort_values("lift", ascending=False, kind="stable", ignore_index=True),
        "attack_families": attack_families(attacks),
        "judge_quality": judge_table(forms),
        "judge_reliability": _frame(bins, BIN_COLUMNS),
    }


def _read(path: Path) -> dict[str, Any]:
    return read_record(path, StudyError, "Run `snakemake prepare`.")


def judge_table(forms: list[dict[str, Any]]) -> pd.DataFrame:
    """One row per judge and form of prompt: AUC, calibration, share of valid scores.

    ``valid at N`` is the share of outputs whose box is complete within N new tokens.
    """
    table = _frame(forms, JUDGE_COLUMNS)
    limits = table.pop("valid").map(lambda shares: shares if isinstance(shares, dict) else {})
    for limit in sorted({n for shares in limits for n in shares}, key=int):
        table[f"valid at {limit}"] = [shares.get(limit) for shares in limits]
    return table


def _frame(rows: list[dict[str, Any]], columns: tuple[str, ...]) -> pd.DataFrame:
    return pd.DataFrame(rows).reindex(columns=list(columns))


def attack_families(attacks: pd.DataFrame) -> pd.DataFrame:
    """Each family of attacks: mean lift over its kinds, and its most effective kind."""
    by_family = attacks.assign(above=attacks["low"] > 0).groupby("family", sort=False)
    table = by_family.agg(attacks=("lift", "size"), mean_lift=("lift", "mean"))
    best = attacks.loc[by_family["lift"].idxmax()].set_index("family")
    table["most_effective"], table["its_lift"] = best["attack"], best["lift"]
    table["interval_above_0"] = by_family["above"].sum()
    table["structure_changed"] = by_family["structure_changed"].sum().astype(int)
    return table.sort_values("mean_lift", ascending=False, kind="stable").reset_index()


def robustness(tables: Tables) -> plot.Drawn:
    """Share of valid scores that are not zero, for each configuration and length."""
    arms, lengths = tables["robustness"], tables["robustness_by_length"]
    figure, axes = plot.panels(3, 3, sharey=True, width_ratios=[2, 3, 2])
    known = list(dict.fromkeys(lengths["length"]))
    for axis, (experiment, title) in zip(axes, TITLES.items(), strict=True):
        part = arms[arms.experiment == experiment]
        places = {arm: place for place, arm in enumerate(part.arm)}
        axis.bar(list(places.values()), part.nonzero_rate, color="#cccccc", width=0.6, label="all")
        for i, length in enumerate(known):
            rows = lengths[(lengths.experiment == experiment) & (lengths.length == length)]
            look: dict[str, Any] = {"marker": "o^s"[i % 3], "color": plot.PALETTE[i], "s": 16}
            shifted = rows.arm.map(places) + 0.15 * (i - (len(known) - 1) / 2)
            axis.scatter(shifted, rows.nonzero_rate, zorder=3, label=words(length), **look)
        shown = [words(arm.removeprefix("new_tokens_").removeprefix("clip_")) for arm in places]
        plot.categories(axis, shown, upright=True)
        axis.set(title=title, ylim=(-0.03, 1.05))
    axes[0].set_ylabel("non-zero rate")
    plot.one_legend(figure, axes)
    return figure, (
        "Share of responses whose score is valid and not zero, by configuration of the judge. "
        "Bars: all responses; markers: by length."
    )


def judge_reliability(tables: Tables) -> plot.Drawn:
    """Share of right answers against the score, for every judge and both forms of the prompt."""
    table = tables["judge_reliability"].query("kind == 'expected'")
    models = list(tables["judge_quality"].model.drop_duplicates())
    figure, axes = plot.panels(len(models), len(models), sharey=True)
    for axis, model in zip(axes, models, strict=False):
        forms = table[table.model == model].groupby("form", sort=False)
        reliability(axis, [(words(str(form)), part, None) for form, part in forms])
        axis.set_title(words(model))
    axes[0].set_ylabel("share of right answers")
    plot.one_legend(figure, axes)
    return figure, (
        "Share of right answers by the judge's expected score on held-out responses (dashed: "
        "perfect calibration)."
    )


def shown(tables: Tables) -> Tables:
    """The tables that the page shows: fewer columns, and attacks by family."""
    judges = tables["judge_quality"].query("form == 'few_shot'")
    columns = ["model", "count", "right", "auc_expected", "auc_within", "ece_expected"]
    names = [*ARM, "responses", "overlength", "nonzero_rate", "valid_rate", "fallback_rate", "auc"]
    return {
        "judges": judges[[*columns, "valid_rate"]],
        "robustness": tables["robustness"][[*names, "tokens_per_response"]],
        "attacks": tables["attack_families"],
    }
