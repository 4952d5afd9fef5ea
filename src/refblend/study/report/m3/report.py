"""Tables, figures, report and headline numbers of milestone M3."""

from importlib import resources
from pathlib import Path
from typing import Any

import jinja2
import pandas as pd

from refblend.files import atomic_path, read_json, sha256_file, write_json, write_text
from refblend.ppo.weights import STRATEGIES
from refblend.study.report.formats import to_markdown, write_table
from refblend.study.report.m3.figures import write_m3_figures
from refblend.study.report.m3.findings import (
    HEADLINE,
    LISTED,
    comparison,
    headline,
    negative_results,
    results,
)
from refblend.study.report.m3.study import M3Study, read_m3_study
from refblend.study.report.m3.tables import m3_tables
from refblend.study.report.shared import plot_data
from refblend.study.runs.collect import Collected
from refblend.study.runs.incidents import incident_totals
from refblend.study.runs.origin import commit_text

PLACEMENTS = {
    "per_token": "Q_t = q on every response token",
    "terminal": "Q_t = q on the last response token, 0 before",
    "per_token_mean": "Q_t = q/L on every response token",
}


def write_m3_report(
    collected: Collected,
    m2: str | Path,
    scale: str,
    params: str | Path,
    recommended: str | Path,
    out: str | Path,
) -> None:
    """Write tables, figures, plot data, ``report.md`` and ``metrics.json`` below ``out``.

    Args:
        collected: the confirming runs.
        m2: results of M2.
        scale: smoke, cpu or gpu.
        params: root of the parameter files.
        recommended: the file of ``refblend study recommend``, its record beside it.
        out: folder.

    Raises:
        StudyError: M2's results, the recommendation or its record cannot be used.
        ConfigError: the recommended file does not fit the scale's configuration.
    """
    out = Path(out)
    study = read_m3_study(collected, m2, scale, params, recommended)
    tables = m3_tables(study)
    for name, frame in tables.items():
        write_table(frame, name, out / "tables")
    captions = write_m3_figures(study, out / "figures")
    for name, frame in plot_data(collected).items():
        with atomic_path(out / "plots" / f"{name}.csv") as temporary:
            frame.to_csv(temporary, index=False, float_format="%.6g")
    write_text(out / "report.md", render(study, tables, captions, Path(recommended)))
    write_json(out / "metrics.json", headline_numbers(study, tables))


def render(
    study: M3Study,
    tables: dict[str, pd.DataFrame],
    captions: dict[str, str],
    recommended: Path,
) -> str:
    """The Markdown text of the report."""
    template = resources.files("refblend.study.report").joinpath("templates", "m3.md.j2")
    environment = jinja2.Environment(undefined=jinja2.StrictUndefined, keep_trailing_newline=True)
    runs, blend = study.collected.runs, study.config.algorithm.ref_quality_score
    confirmation = tables["confirmation"]
    return environment.from_string(template.read_text(encoding="utf-8")).render(
        scale=study.scale,
        question=study.experiment.question,
        headline=headline(study, confirmation),
        results=results(study, confirmation),
        negative=negative_results(study, confirmation),
        record=study.record,
        blends=study.blends,
        blend=blend.model_dump(mode="json"),
        estimator=study.config.algorithm.adv_estimator,
        formula=STRATEGIES[blend.strategy].formula,
        placement=PLACEMENTS[blend.placement],
        stability=None if study.record["stability"] is None else f"{study.record['stability']:.0%}",
        seeds=study.seeds,
        overlay=recommended.read_text(encoding="utf-8").rstrip(),
        overlay_name=recommended.name,
        overlay_hash=sha256_file(recommended)[:16],
        m1=m1_text(study.m2.parent / "m1"),
        m2=study.m2_markdown(),
        tables={name: to_markdown(frame) for name, frame in tables.items()},
        figure=lambda name: (
            f"![{name.replace('_', ' ')}](figures/{name}.png)\n\n*{captions[name]}*\n"
        ),
        commit=commit_text(study.collected),
        hardware="; ".join(sorted({name for name in runs.hardware.dropna() if name})) or "unknown",
    )


def m1_text(folder: Path) -> str:
    """One sentence on M1 from its ``metrics.json``; says so where there is none."""
    path = folder / "metrics.json"
    if not path.exists():
        return "M1 has no record here."
    numbers = read_json(path)
    runs, incidents = numbers["runs"], numbers["incidents"]
    counts = ", ".join(f"{name.replace('_', '-')} {n}" for name, n in sorted(incidents.items()))
    return f"{runs['finished']} of {runs['planned']} runs finished; incidents: {counts}."


def headline_numbers(study: M3Study, tables: dict[str, pd.DataFrame]) -> dict[str, Any]:
    """Nested numbers for ``dvc metrics``: means, differences, incidents, runs, costs."""
    confirmation, costs = tables["confirmation"], tables["costs"].set_index("what")
    rows = confirmation[confirmation.measure == HEADLINE].drop_duplicates("arm")
    differences = {}
    for arm, against in LISTED:
        row = comparison(confirmation, arm, against)
        if row is not None:
            keys = {"diff": "mean", "diff_low": "low", "diff_high": "high"}
            differences[f"{arm} - {against}"] = {
                name: round(float(row[key]), 6) for key, name in keys.items() if pd.notna(row[key])
            } | {"n": int(row["pairs"])}
    total = costs.loc["all, measured", ["hours", "energy_kwh", "kg_co2e"]]
    return {
        "recommended": {"arm": study.record["arm"], "evidence": study.record["level"]},
        HEADLINE: {
            str(row.arm): round(float(row.mean), 6)
            for row in rows.itertuples(name="Row")
            if pd.notna(row.mean)
        },
        "differences": differences,
        "incidents": incident_totals(study.collected),
        "runs": {
            "planned": len(study.collected.runs),
            "finished": len(study.collected.finished),
        },
        "costs": {str(key): round(float(v), 6) for key, v in total.items() if pd.notna(v)},
    }
