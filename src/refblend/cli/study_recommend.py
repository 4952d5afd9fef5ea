"""``refblend study recommend | guard``: choose a configuration, and check that it is safe."""

from pathlib import Path
from typing import Annotated

import typer

Folder = Annotated[Path, typer.Option(help="Folder written by `refblend study collect`.")]
Scale = Annotated[str, typer.Option(help="smoke, cpu, smollm or gpu.")]
Params = Annotated[Path, typer.Option(help="Root of the parameter files.")]
Recommended = Annotated[Path, typer.Option(help="File written by `refblend study recommend`.")]


def register(app: typer.Typer) -> None:
    """Add the commands to ``refblend study``."""
    app.command()(recommend)
    app.command()(guard)


def recommend(
    collected: Folder,
    scale: Scale,
    out: Annotated[
        Path, typer.Option(help="recommended.yaml; its record goes next to it as .json.")
    ],
    params: Params = Path("params"),
    attacks: Annotated[
        Path | None,
        typer.Option(help="attacks.csv of the scoring study; decides scoring.on_failure."),
    ] = None,
) -> None:
    """Choose the recommended configuration from the runs of M2 by a fixed rule."""
    from refblend.study.recommend.choose import recommend as choose
    from refblend.study.recommend.on_failure import read_attacks
    from refblend.study.recommend.overlay import write_recommendation
    from refblend.study.runs.collect import read_collected

    table = read_attacks(attacks) if attacks else None
    chosen = choose(read_collected(collected), scale, params, table)
    write_recommendation(chosen, out)
    typer.echo(f"{out}: {chosen.arm}. {chosen.evidence.text}")


def guard(
    collected: Folder,
    recommended: Recommended,
    out: Annotated[Path, typer.Option(help="guards.json; not written when a guard fails.")],
    tolerated: Annotated[
        list[str] | None,
        typer.Option(help="kind=number, e.g. oom=0; judge_invalid is a share of the scores."),
    ] = None,
    params: Params = Path("params"),
) -> None:
    """Fail when runs of M3 are missing, have incidents, or fall below the baseline."""
    from refblend.files import write_json
    from refblend.study.recommend.confirmation import load_confirmation
    from refblend.study.recommend.guards import guard as check
    from refblend.study.recommend.guards import parse_tolerated
    from refblend.study.runs.collect import read_collected

    limits, roles = parse_tolerated(tolerated or []), load_confirmation(params)
    record = check(read_collected(collected), recommended, roles, limits)
    write_json(out, record)
    difference = record["difference"]
    typer.echo(
        f"{out}: {roles.recommended} − {roles.baseline}: {difference['estimate']:+.4f} "
        f"[{difference['low']:+.4f}, {difference['high']:+.4f}] ({record['measure']}, "
        f"n = {difference['n']})"
    )
