"""Wrong input to every command: status, message and time, for docs/explanation/reliability.md.

`python benchmarks/wrong_inputs.py` calls each command of :data:`CASES` in a process of its own, in
a folder with the parameters, data and models of scale smoke (``make prepare``) and the damaged
files of :func:`make_files`, and writes ``benchmarks/results/wrong_inputs.json``. A case fails when
the status is another than documented, when there is a traceback, when a line of standard error is
not an error of ours, when the message lacks what it must name, or when it takes longer than five
seconds of CPU time, which is the wall time on an idle core; on a busy machine, and with Snakemake,
ten.
"""

import json
import os
import resource
import shlex
import shutil
import subprocess
import sys
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import pandas as pd
import typer

ROOT = Path(__file__).resolve().parents[1]
LIMIT_S = 5.0
SMOKE = "--config params/ppo.yaml --config params/scale/smoke.yaml"
QUALITY = "algorithm.ref_quality_score"
SCORING = f"{QUALITY}.scoring"
MODEL = "actor_rollout_ref.model.path"
REWARD = "reward.custom_reward_function"
JUDGE = "--judge models/smoke/judge_weak --kind hf"
PROGRAM = "import sys; sys.argv[0] = 'refblend'; from refblend.cli.main import main; main()"


@dataclass(frozen=True)
class Case:
    """A command line with something wrong in it."""

    command: str
    """After ``refblend``, unless it begins with ``snakemake``; read as a shell would."""
    says: str
    """What the message must contain."""
    prepared: bool = True
    """Whether it needs the data and models of scale smoke."""
    problems: int = 1
    """Lines of errors."""
    status: int = 2


def check(overrides: str, says: str, **more: Any) -> Case:
    """A case of ``refblend check`` at scale smoke."""
    return Case(f"check {SMOKE} {overrides}", says, **more)


def settings(overrides: str, says: str) -> Case:
    """A case that the configuration alone decides."""
    return check(overrides, says, prepared=False)


CASES = [
    settings("trainer.sede=1", "Did you mean trainer.seed?"),
    settings("trainer.total_training_steps=many", "trainer.total_training_steps='many'"),
    settings(f"{QUALITY}.max_weight=1.5", "less than or equal to 1"),
    settings("algorithm.gamma=.nan", "algorithm.gamma"),
    settings(f"{QUALITY}.strategy=quadratic", "'linear'"),
    settings(f"{QUALITY}.entropy_high_threshold=0", "greater than 0"),
    settings("trainer.seed", "trainer.seed"),
    settings("trainer.seed=[1", "trainer.seed"),
    check("data.train_files=[]", "data.train_files"),
    Case("check --config nowhere.yaml", "nowhere.yaml", prepared=False),
    Case("check --config made/broken.yaml", "broken.yaml", prepared=False),
    Case("check --config made/list.yaml", "list.yaml", prepared=False),
    Case("check", "Missing option '--config'. See `refblend check --help`", prepared=False),
    Case("chek", "Did you mean 'check'? See `refblend --help`", prepared=False),
    Case(f"train {SMOKE} --sede 1", "No such option: --sede", prepared=False),
    Case("runs list runs elsewhere", "unexpected extra argument", prepared=False),
    check("algorithm.adv_estimator=ppo", "adv_estimator='ppo'"),
    check("algorithm.adv_estimator=nowhere:f", "No module named 'nowhere'"),
    check(f"{REWARD}.path=nowhere.py", "nowhere.py"),
    check(f"{REWARD}.path=made/rewards.py {REWARD}.name=two", "verl's arguments"),
    check(f"{REWARD}.path=made/rewards.py {REWARD}.name=text", "is not a number"),
    check(f"{REWARD}.path=made/rewards.py {REWARD}.name=absent", "has no function absent"),
    check(f"{MODEL}=models/none", "models/none is not a directory"),
    check(f"{MODEL}=Qwen/Qwen2.5-0.5B-Instruct", "hf download Qwen/Qwen2.5-0.5B-Instruct"),
    check(f"{MODEL}=made/truncated", "truncated"),
    check(f"{MODEL}=made/no_tokenizer", "holds no tokenizer"),
    check(f"{MODEL}=made/no_weights", "holds no weights"),
    check(f"{SCORING}.model_path=models/none", f"{SCORING}.model_path"),
    check(f"{SCORING}.templates=nowhere.yaml", "nowhere.yaml"),
    check(f"{SCORING}.templates=made/templates.yaml", "templates.yaml"),
    check(f"{SCORING}.max_model_len=100", "the compact template takes"),
    check("data.train_files=[nowhere.parquet]", "nowhere.parquet"),
    check("data.train_files=[made/empty.jsonl]", "empty.jsonl"),
    check("data.train_files=[made/text.parquet]", "text.parquet"),
    check("data.train_files=[made/riddles.parquet]", "no rule reward for data_source 'riddles'"),
    check("data.train_files=[made/no_prompt.jsonl]", "no_prompt.jsonl"),
    check("data.train_batch_size=100000", "Lower it"),
    check("data.max_prompt_length=4", "data.max_prompt_length"),
    check("actor_rollout_ref.rollout.max_model_len=100000", "positions of models/smoke/actor"),
    check("actor_rollout_ref.rollout.kv_cache_memory_mb=9000000", "of memory"),
    check("ray.object_store_memory_mb=9000000", "Change ray.object_store_memory_mb"),
    check("actor_rollout_ref.rollout.num_gpus=100", "asks for 100 GPUs"),
    check("trainer.default_local_dir=/proc/x", "cannot be written"),
    check("trainer.default_local_dir=made/list.yaml", "cannot be written"),
    check("trainer.default_local_dir=made/unmarked", "not marked as a run"),
    check("trainer.default_local_dir=made/run", "is damaged or of another version"),
    check(
        f"{MODEL}=models/none data.val_files=[nowhere.parquet] trainer.default_local_dir=/proc/x",
        "nowhere.parquet",
        problems=3,
    ),
    Case(f"train {SMOKE} trainer.sede=1", "Did you mean trainer.seed?", prepared=False),
    Case(f"train {SMOKE} {MODEL}=made/truncated", "truncated"),
    Case(f"train {SMOKE} trainer.default_local_dir=made/run", "is damaged or of another"),
    Case(f"train {SMOKE} --seeds 1,1", "list of distinct seeds", prepared=False),
    Case(f"train {SMOKE} --seeds 1,2", "Put {seed} where the seed belongs", prepared=False),
    Case(f"train {SMOKE} trainer.resume_mode=resume_path", "resume_from_path"),
    Case("score --input made/answers.jsonl --output o.csv", "--judge is missing", prepared=False),
    Case("score --judge none --input made/answers.jsonl --output o.csv", "none is not a directory"),
    Case(f"score {JUDGE} --input nowhere.jsonl --output o.csv", "nowhere.jsonl"),
    Case(f"score {JUDGE} --input made/no_prompt.jsonl --output o.csv", "no_prompt.jsonl"),
    Case(f"score {JUDGE} --input made/answers.jsonl --output o.xlsx", "names no format"),
    Case(f"score {JUDGE} --input made/answers.jsonl --output /proc/o.csv", "cannot be written"),
    Case(
        f"score {JUDGE} --input made/answers.jsonl --output o.csv --set temprature=1", "temprature"
    ),
    Case(
        "score --kind http --input made/answers.jsonl --output o.csv", "--base-url", prepared=False
    ),
    Case(f"judge quality {JUDGE} --report r.json", "either --data or --corpus"),
    Case(f"judge quality {JUDGE} --corpus made/answers.jsonl --report r.json", "label"),
    Case(
        f"judge robustness {JUDGE} --data data/smoke/test.parquet --report made", "is a directory"
    ),
    Case(f"judge attacks {JUDGE} --data nowhere.parquet --report r.json", "nowhere.parquet"),
    Case("evaluate runs/none --data data/smoke/test.parquet", "runs/none"),
    Case("evaluate made/unmarked --data data/smoke/test.parquet", "made/unmarked"),
    Case("show runs/none", "runs/none", prepared=False),
    Case("data prepare --recipe nowhere.yaml --out out", "nowhere.yaml", prepared=False),
    Case("data gsm8k --source made --out out", "made", prepared=False),
    Case("data math --source nowhere --out out", "nowhere", prepared=False),
    Case("models tokenizer --recipe made/list.yaml --out out", "list.yaml", prepared=False),
    Case("models pretrained --gguf nowhere.gguf --out out", "nowhere.gguf", prepared=False),
    Case(
        "models evaluate-actor --recipe params/embedded/smoke.yaml --model models/none"
        " --data data/smoke/test.parquet --report r.json",
        "models/none",
    ),
    Case("plan M9 --scale cpu --slots 2", "M9", prepared=False),
    Case("plan M1 --scale huge --slots 2", "huge", prepared=False),
    Case("plan M1 --scale cpu --slots 0", "at least 1", prepared=False),
    Case("study grid M9 --scale cpu --out g.tsv", "M9", prepared=False),
    Case(
        "study collect --grid made/broken.tsv --scale cpu --out out", "broken.tsv", prepared=False
    ),
    Case("study tables --milestone m9 --scale smoke", "m9", prepared=False),
    Case("study figure --milestone m1 --scale smoke --out x.svg", "figure x", prepared=False),
    Case("study check --collected nowhere --out c.json", "nowhere", prepared=False),
    Case("runs list nowhere", "nowhere", prepared=False),
    Case("runs prune nowhere", "nowhere", prepared=False),
    Case("snakemake m1 -n --config scal=cpu", "Did you mean scale?", prepared=False, status=1),
    Case("snakemake m1 -n --config scale=huge", "scale='huge'", prepared=False, status=1),
    Case("snakemake m1 -n --config seeds_per_job=0", "seeds_per_job=0", prepared=False, status=1),
]


def make_files(folder: Path, actor: Path | None) -> None:
    """The damaged files that the cases name.

    Args:
        folder: ``made`` of the cases.
        actor: directory of a model to damage copies of; None: no case needs it.
    """
    folder.mkdir(parents=True)
    texts = {
        "broken.yaml": "trainer: {seed: 1\n",
        "list.yaml": "- 1\n- 2\n",
        "templates.yaml": "header: Rate.\nheadder: Rate.\n",
        "empty.jsonl": "",
        "text.parquet": "no parquet",
        "no_prompt.jsonl": '{"data_source": "openai/gsm8k"}\n',
        "answers.jsonl": '{"question": "2+3?", "response": "5"}\n',
        "broken.tsv": "arm\tsead\noff\t1\n",
        "rewards.py": (
            "def two(a, b): return 0.0\n"
            "def text(data_source, solution_str, ground_truth, extra_info): return 'good'\n"
        ),
        "unmarked/metrics.jsonl": "{}\n",
        "run/identity.json": '{"identity": "of another version"}\n',
    }
    for name, text in texts.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text)
    row = {
        "data_source": "riddles",
        "prompt": [{"role": "user", "content": "What is it?"}],
        "ability": "math",
        "reward_model": {"style": "rule", "ground_truth": "5"},
        "extra_info": {"index": 0, "question": "What is it?", "answer": "5"},
    }
    pd.DataFrame([row] * 64).to_parquet(folder / "riddles.parquet")
    if actor is None:
        return
    for name in ("truncated", "no_tokenizer", "no_weights"):
        shutil.copytree(actor, folder / name)
    weights = folder / "truncated" / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1000])
    (folder / "no_weights" / "model.safetensors").unlink()
    for path in (folder / "no_tokenizer").glob("tokenizer*"):
        path.unlink()


def make_project(folder: Path, prepared: Path) -> None:
    """A folder in which the cases run: links to the project's files, and damaged ones."""
    folder.mkdir(parents=True)
    for name in ("params", "workflow", "src", "Snakefile", "results"):
        (folder / name).symlink_to(ROOT / name)
    for name in ("data", "models"):
        (folder / name).symlink_to(prepared / name)
    make_files(folder / "made", prepared / "models" / "smoke" / "actor")


def faults(case: Case, status: int, output: str) -> list[str]:
    """What is wrong with a command's end; nothing, if it is as promised.

    Args:
        case: the command.
        status: its exit status.
        output: its standard error; of Snakemake all of it.
    """
    lines = output.strip().splitlines()
    found = [] if status == case.status else [f"status {status}"]
    found += ["a traceback"] if "Traceback" in output else []
    found += [] if case.says in output else [f"does not say {case.says!r}"]
    if not case.command.startswith("snakemake"):
        if len(lines) != case.problems:
            found.append(f"{len(lines)} lines")
        found += [f"not an error: {line}" for line in lines if not line.startswith("error: ")]
    return found


def message(case: Case, output: str) -> str:
    """The lines that a reader needs."""
    lines = [line.strip(" │") for line in output.strip().splitlines()]
    if case.command.startswith("snakemake"):
        lines = [line for line in lines if case.says in line][:1]
    return " / ".join(lines)


def call(case: Case, project: Path) -> dict[str, Any]:
    """Run a case; its row of the table."""
    words = shlex.split(case.command)
    module = ["-m", "snakemake"] if words[0] == "snakemake" else []
    program = module or ["-c", PROGRAM]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(
        [sys.executable, *program, *words[bool(module) :]],
        cwd=project,
        env=os.environ
        | {"PYTHONPATH": str(ROOT / "src"), "COLUMNS": "200", "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    output = done.stderr if not module else done.stdout + done.stderr
    output = output.replace(f"{project}/", "").replace(f"{ROOT}/", "")
    found = faults(case, done.returncode, output)
    busy = os.getloadavg()[0] > 1.5 * (os.cpu_count() or 1)  # cores that are shared are slower
    limit = 2 * LIMIT_S if busy or module else LIMIT_S
    found += [f"{seconds:.1f} s"] if seconds > limit else []
    return {
        "command": case.command.replace(f" {SMOKE}", " …"),
        "status": done.returncode,
        "message": message(case, output),
        "seconds": round(seconds, 1),
        "faults": found,
    }


def main(
    prepared: Annotated[Path, typer.Option(help="Where data/ and models/ of smoke lie.")] = ROOT,
    lanes: Annotated[int, typer.Option(help="Commands at a time.", min=1)] = 2,
    only: Annotated[str, typer.Option(help="Part of a command.")] = "",
    write: Annotated[bool, typer.Option(help="Write benchmarks/results/wrong_inputs.json.")] = True,
) -> None:
    """Call all commands; exit status 1 if one of them does not end as promised."""
    from refblend.files import write_json

    project = ROOT / "build" / "wrong_inputs"
    shutil.rmtree(project, ignore_errors=True)
    make_project(project, prepared.resolve())
    rows = []
    cases = [case for case in CASES if only in case.command]
    with ProcessPoolExecutor(lanes) as pool:  # processes: each counts the time of its own commands
        for row in pool.map(partial(call, project=project), cases):
            rows.append(row)
            mark = "; ".join(row["faults"]) or "as promised"
            typer.echo(f"{row['status']} {row['seconds']:4.1f} s {row['command']}: {mark}")
            if row["faults"]:
                typer.echo(f"    {row['message']}")
    good = sum(not row["faults"] for row in rows)
    typer.echo(f"{good} of {len(rows)} as promised")
    if write:
        table = {"headline": {"value": good, "goal": len(rows)}, "cases": rows}
        write_json(
            ROOT / "benchmarks" / "results" / "wrong_inputs.json", json.loads(json.dumps(table))
        )
    sys.exit(good < len(rows))


if __name__ == "__main__":
    typer.run(main)
