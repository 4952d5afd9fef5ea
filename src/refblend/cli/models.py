"""``refblend models …``: build and measure the embedded tokenizer, actor and judges."""

from pathlib import Path
from typing import Annotated, Literal

import typer
from typer import Argument, Option

from refblend import runtime
from refblend.cli.options import Needed, Panels, Recipe, example
from refblend.files import write_json
from refblend.tables import check_results

app = typer.Typer(cls=Panels, no_args_is_help=True)

Models = Annotated[Path, Argument(help="Folder of a scale, e.g. models/cpu.")]
_RECIPE = "--recipe params/embedded/smoke.yaml"


@app.callback()
def _environment() -> None:
    """The embedded models: measure, convert, pack."""
    runtime.configure_process()


@app.command(hidden=True)
def tokenizer(recipe: Needed, out: Needed) -> None:
    """Train the byte-level BPE on the corpus of the recipe, or copy the pretrained model's."""
    from refblend.data.tokenizer import load_tokenizer
    from refblend.embedded.demonstrations import build_tokenizer
    from refblend.embedded.recipe import load_recipe
    from refblend.scoring.templates import load_templates

    settings = load_recipe(recipe)
    if settings.pretrained is not None:
        trained = load_tokenizer(settings.pretrained.model)
    else:
        trained = build_tokenizer(settings, load_templates(settings.scoring_templates))
    trained.save_pretrained(out)
    typer.echo(f"{out}: {len(trained)} tokens")


@app.command(hidden=True)
def actor(recipe: Needed, tokenizer: Needed, out: Needed, clean_out: Needed) -> None:
    """Train the warm start: the clean phase, then the sloppy one."""
    from refblend.data.tokenizer import load_tokenizer
    from refblend.embedded.actor import train_actor
    from refblend.embedded.recipe import load_recipe

    clean, sloppy = train_actor(load_recipe(recipe), load_tokenizer(tokenizer), clean_out, out)
    then = f"{sloppy.seconds:.0f} s" if sloppy else "none"
    typer.echo(f"{out}: clean phase {clean.seconds:.0f} s, sloppy phase {then}")


@app.command("judge-data", hidden=True)
def judge_data(
    recipe: Needed, tokenizer: Needed, actor: Needed, clean: Needed, out: Needed, test_out: Needed
) -> None:
    """Sample, collect and corrupt responses to train the judges."""
    from refblend.data.tokenizer import load_tokenizer
    from refblend.embedded.architecture import load_model
    from refblend.embedded.judge_data import build_pairs, write_pairs
    from refblend.embedded.problems import Split
    from refblend.embedded.recipe import load_recipe

    settings, tokens = load_recipe(recipe), load_tokenizer(tokenizer)
    actors = {"actor": load_model(actor), "actor_clean": load_model(clean)}
    outputs: dict[Split, Path] = {"train": out, "test": test_out}
    for split, path in outputs.items():
        pairs = build_pairs(settings, split, tokens, actors)
        write_pairs(path, pairs)
        typer.echo(f"{path}: {len(pairs)} pairs, {sum(p.right for p in pairs)} right")


@app.command(hidden=True)
def judge(
    recipe: Needed,
    tokenizer: Needed,
    strength: Annotated[Literal["weak", "medium", "strong"], Option()],
    start: Needed,
    pairs: Needed,
    out: Needed,
) -> None:
    """Train one strength of the judge; medium continues from weak, strong from medium."""
    from refblend.data.tokenizer import load_tokenizer
    from refblend.embedded.judge_training import train_judge
    from refblend.embedded.recipe import load_recipe

    settings, tokens = load_recipe(recipe), load_tokenizer(tokenizer)
    result = train_judge(settings, tokens, pairs, strength, start, out)
    typer.echo(f"{out}: {result.seconds:.0f} s, {result.tokens / result.seconds:,.0f} tokens/s")


@app.command(
    "evaluate-actor",
    epilog=example(
        f"models evaluate-actor {_RECIPE} --model models/smoke/actor "
        "--data data/smoke/test.parquet --report actor.json"
    ),
)
def evaluate_actor(
    recipe: Recipe,
    model: Annotated[Path, Option(help="Model directory, with its tokenizer.")],
    data: Annotated[Path, Option(help="Prompt file, e.g. data/cpu/test.parquet.")],
    report: Annotated[Path, Option(help="JSON report to write.")],
) -> None:
    """Measure accuracy, pass@k and entropy of an actor."""
    from refblend.data.schema import read_rows
    from refblend.data.tokenizer import load_tokenizer
    from refblend.embedded.actor_quality import measure_actor
    from refblend.embedded.architecture import load_model
    from refblend.embedded.recipe import load_recipe

    check_results([data], [report])
    settings = load_recipe(recipe).evaluation
    rows, limits = read_rows(data), (settings.samples, settings.max_new_tokens)
    rows = rows[: settings.problems]
    quality = measure_actor(load_model(model), load_tokenizer(model), rows, *limits)
    write_json(report, {"model": model.name, **quality})
    typer.echo(
        "{model}: greedy {greedy:.3f}, sampled {sampled:.3f}, pass@{samples} {pass_at_k:.3f}, "
        "entropy {entropy:.3f} nats".format(model=model, **quality)
    )


@app.command(epilog=example("models pretrained --gguf model.gguf --out models/mine"))
def pretrained(
    gguf: Annotated[Path, Option(help="The GGUF file.")],
    out: Annotated[Path, Option(help="Directory to write.")],
    sha256: Annotated[
        str | None, Option(help="Its checksum; default: SmolLM2-135M-Instruct's.")
    ] = None,
) -> None:
    """Turn a pretrained model's GGUF file into a Hugging Face directory."""
    from refblend.embedded.architecture import SMOLLM2_SHA256, convert_gguf

    count = convert_gguf(gguf, out, sha256 or SMOLLM2_SHA256)
    typer.echo(f"{out}: {count / 1e6:.1f}M parameters")


@app.command(epilog=example(f"models pack models.tar.xz models/smoke {_RECIPE}"))
def pack(
    target: Annotated[Path, Argument(metavar="FILE", help="File to write, .tar.xz.")],
    models: Models,
    recipe: Recipe,
) -> None:
    """Pack a scale's tokenizer, actor and judges, so that other machines start from them."""
    from refblend.embedded.pack import pack_models
    from refblend.embedded.recipe import load_recipe

    pack_models(models, load_recipe(recipe), target)
    typer.echo(f"{target}: {target.stat().st_size / 1e6:.1f} MB")


@app.command(epilog=example(f"models unpack models.tar.xz models/smoke {_RECIPE}"))
def unpack(
    source: Annotated[Path, Argument(metavar="FILE", help="File of `refblend models pack`.")],
    models: Models,
    recipe: Recipe,
) -> None:
    """Unpack models in place of those that are there, if this recipe made them."""
    from refblend.embedded.pack import PARTS, unpack_models
    from refblend.embedded.recipe import load_recipe

    made = unpack_models(source, load_recipe(recipe), models)
    typer.echo(f"{models}: {', '.join(PARTS)}, made on {made['hardware'].get('cpu')}")
