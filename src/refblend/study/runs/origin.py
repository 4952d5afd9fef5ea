"""The origin of a milestone's numbers: commits, hardware, runs and their cost."""

from typing import Any, Protocol

from refblend.study.runs.collect import Collected
from refblend.study.runs.incidents import incident_totals


def commit_text(collected: Collected) -> str:
    """The commits that trained the runs, shortened, with a note if the work tree was not clean."""
    known = collected.runs[collected.runs.commit.fillna("") != ""]
    commits = [commit[:10] for commit in dict.fromkeys(known.commit)]
    dirty = bool(known.dirty.fillna(False).any())
    return (", ".join(commits) or "unknown") + (" with uncommitted changes" if dirty else "")


def origin(collected: Collected) -> str:
    """The number of runs behind a figure, and the commit that trained them."""
    counts = collected.finished.groupby("arm", sort=False).size()
    runs = ", ".join(f"{arm} n = {count}" for arm, count in counts.items()) or "none"
    absent = len(collected.runs) - len(collected.finished)
    more = f" ({absent} of {len(collected.runs)} runs did not finish)" if absent else ""
    return f"Runs: {runs}{more}. Commit {commit_text(collected)}."


class WithRuns(Protocol):
    """A study that has runs."""

    @property
    def collected(self) -> Collected:
        """Its frames."""
        ...


def origin_of(study: WithRuns) -> str:
    """:func:`origin` of a study's runs; the end of a report's captions."""
    return origin(study.collected)


def facts(collected: Collected) -> dict[str, Any]:
    """What every report says about its runs, as variables for its template.

    Returns:
        ``runs`` and ``finished`` (numbers), ``absent`` (rows of runs that did not finish),
        ``seeds``, ``commit``, ``hardware``, ``incidents`` (kind → number) and ``totals`` (texts:
        hours, kwh, kg of CO₂e).
    """
    runs = collected.runs
    return {
        "runs": len(runs),
        "finished": len(collected.finished),
        "absent": runs[runs.status != "finished"].to_dict("records"),
        "seeds": sorted({int(seed) for seed in runs.seed}),
        "commit": commit_text(collected),
        "hardware": "; ".join(sorted({name for name in runs.hardware.dropna() if name}))
        or "unknown",
        "incidents": incident_totals(collected),
        "totals": {
            "hours": f"{runs.wall_time_s.sum() / 3600:.2f}",
            "kwh": f"{runs.energy_kwh.sum():.4f}",
            "kg": f"{runs.kg_co2e.sum():.4f}",
        },
    }
