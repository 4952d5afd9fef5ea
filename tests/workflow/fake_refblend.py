"""Stands in for ``refblend`` where jobs would train: writes the files that the workflow expects.

``study`` commands are the real ones. The environment variable FAKE_FAIL names an arm whose
training ends with status 1, before the first seed or, as ``arm:seed``, at that seed, whose reason
is recorded; FAKE_KILL one whose training dies by SIGKILL at the last seed. With FAKE_SECONDS a seed
takes so long, finished seeds are skipped as the trainer does, and ``finished.txt`` lists those that
were trained.
"""

import json
import os
import signal
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "study"))


def option(name: str) -> Path:
    return Path(sys.argv[sys.argv.index(name) + 1])


def write(path: Path, text: str = "{}") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def tokenizer(folder: Path) -> None:
    for name in ("tokenizer.json", "tokenizer_config.json"):
        write(folder / name)


def model(folder: Path, *, judge: bool = False) -> None:
    for name in ("config.json", "training.json"):
        write(folder / name)
    write(folder / "model.safetensors", folder.name)
    if judge:
        write(folder / "scoring_templates.yaml")


def train() -> None:
    from made_runs import write_run

    values = dict(argument.split("=", 1) for argument in sys.argv if "=" in argument)
    pattern = values["trainer.default_local_dir"]
    arm = Path(pattern).parent.name
    seeds = str(option("--seeds")).split(",")
    failing = os.environ.get("FAKE_FAIL", "")
    seconds = float(os.environ.get("FAKE_SECONDS", "0"))
    with open("trained.txt", "a") as stream:
        stream.write(f"{arm}/{'-'.join(seeds)}\n")
    if failing == arm:
        print("no memory left")
        sys.exit(1)
    for seed in seeds:
        run = Path(pattern.replace("{seed}", seed))
        if seconds:
            if (run / "summary.json").exists():
                continue
            time.sleep(seconds)
            # The trainer's last files are atomic; those of the stand-in are all or none.
            signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM, signal.SIGINT])
        if os.environ.get("FAKE_KILL") == arm and seed == seeds[-1]:
            os.kill(os.getpid(), signal.SIGKILL)
        if failing == f"{arm}:{seed}":
            reason = {"status": "failed", "reason": "the loss went astray"}
            write(run / "summary.json", json.dumps(reason))
        else:
            write_run(run, int(seed), steps=10, blended=not arm.endswith("off"))
        if seconds:
            with open("finished.txt", "a") as stream:
                stream.write(f"{arm}/{seed}\n")
            signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGTERM, signal.SIGINT])
    if failing.startswith(f"{arm}:"):
        print("error: one of the seeds failed")
        sys.exit(1)


def main() -> None:
    from refblend.lifecycle.supervision import follow_supervisor

    follow_supervisor()
    command = sys.argv[1:3]
    if command[0] == "train":
        train()
    elif command[0] == "evaluate":
        from refblend.study.runs.run_files import bound_to

        for run in map(Path, sys.argv[2 : sys.argv.index("--data")]):
            status = json.loads((run / "summary.json").read_text())["status"]
            if status == "failed":
                write(run / "test.json", json.dumps({"status": status}))
                continue
            report = {"status": status, "of": bound_to(run, 10), "greedy": 0.5}
            write(run / "test.json", json.dumps(report))
        write(option("--out"))
    elif command[0] == "study":
        from refblend.cli.study import app
        from refblend.errors import RefblendError

        sys.argv = sys.argv[1:]
        try:
            app()
        except RefblendError as error:
            print(f"error: {error}")
            sys.exit(2)
    elif command == ["data", "prepare"]:
        for name in ("train", "validation", "test", "sanity"):
            write(option("--out") / f"{name}.parquet")
    elif command == ["models", "tokenizer"]:
        tokenizer(option("--out"))
    elif command == ["models", "unpack"]:
        folder = Path(sys.argv[4])
        tokenizer(folder / "tokenizer")
        for name in ("train", "test"):
            write(folder / "judge_pairs" / f"{name}.parquet")
        for name in ("actor", "actor_clean", "judge_weak", "judge_medium", "judge_strong"):
            model(folder / name, judge=name.startswith("judge"))
    elif command == ["models", "judge-data"]:
        write(option("--out"))
        write(option("--test-out"))
    elif command == ["models", "evaluate-actor"]:
        write(option("--report"), json.dumps({"greedy": 0.3}))
    elif command[0] == "judge":
        import scoring_reports

        write(option("--report"), json.dumps(getattr(scoring_reports, command[1])()))
    else:
        model(option("--out"), judge=command[1] == "judge")
        if "--clean-out" in sys.argv:
            model(option("--clean-out"))


main()
