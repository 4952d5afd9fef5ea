"""``refblend models …``: build and measure the embedded tokenizer, actor and judges."""

from pathlib import Path
from typing import Annotated

import typer

from refblend import runtime

app = typer.Typer(
    help="Build and measure the embedded tokenizer, actor and judges.", no_args_is_help=True
)

Recipe = Annotated[Path, typer.Option(help="Recipe file, e.g. params/embedded/cpu.yaml.")]
Tokenizer = Annotated[Path, typer.Option(help="Tokenizer directory.")]
Out = Annotated[Path, typer.Option(help="Directory to write.")]
Report = Annotated[Path, typer.Option(help="JSON report to write.")]


@app.callback()
def _environment() -> None:
    """Build and measure the embedded tokenizer, actor and judges."""
    runtime.configure_process()


@app.command()
def tokenizer(recipe: Recipe, out: Out) -> None:
    """Train the byte-level BPE on the corpus of the recipe."""
    from refblend.models.corpus import build_tokenizer
    from refblend.models.recipe import load_recipe
    from refblend.scoring.templates import load_templates

    settings = load_recipe(recipe)
    trained = build_tokenizer(settings, load_templates(settings.scoring_templates))
    trained.save_pretrained(out)
    typer.echo(f"{out}: {len(trained)} tokens")


@app.command()
def actor(
    recipe: Recipe,
    tokenizer: Tokenizer,
    out: Annotated[Path, typer.Option(help="Directory of the actor (after both phases).")],
    clean_out: Annotated[Path, typer.Option(help="Directory of the clean warm start.")],
    state: Annotated[
        Path | None, typer.Option(help="Directory of unfinished training; default beside --out.")
    ] = None,
) -> None:
    """Train the warm start: the clean phase, then the sloppy one."""
    from refblend.data.tokenizer import load_tokenizer
    from refblend.models.actor import train_actor
    from refblend.models.recipe import load_recipe

    state_dir = state or out.with_name(f".{out.name}.training")
    result = train_actor(load_recipe(recipe), load_tokenizer(tokenizer), clean_out, out, state_dir)
    clean = f"{result.clean.seconds:.0f} s" if result.clean else "kept"
    typer.echo(f"{out}: clean phase {clean}, sloppy phase {result.sloppy.seconds:.0f} s")
