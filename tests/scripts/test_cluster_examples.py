"""examples/slurm and examples/kuberay, as far as they can be checked without these systems."""

import json
import os
import re
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from refblend.config import load_config

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
SCRIPT = EXAMPLES / "slurm" / "train.sbatch"
NODES = ROOT / "scripts" / "two_nodes.sh"
SCRIPTS = [SCRIPT, EXAMPLES / "kuberay" / "train.sh", *sorted((ROOT / "scripts").glob("*.sh"))]
SCHEMA = json.loads((Path(__file__).parent / "rayjob.schema.json").read_text())
REFUSAL = (
    (os.environ.get("REFBLEND_NODES") != "1" and "called by `make nodes`")
    or (os.geteuid() != 0 and "network namespaces need root")
    or (shutil.which("ip") is None and "iproute2 is missing (`ip`)")
)


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.name)
def test_bash_can_read_the_scripts(path: Path) -> None:
    done = subprocess.run(["bash", "-n", path], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def rayjob() -> dict[str, Any]:
    return yaml.safe_load((EXAMPLES / "kuberay" / "rayjob.yaml").read_text())


def test_the_rayjob_fits_its_schema() -> None:
    jsonschema.validate(rayjob(), SCHEMA)


def test_the_pods_hold_the_run_and_have_its_ray_and_its_token() -> None:
    """Scale gpu on the workers; the versions are those of the lock."""
    cluster = rayjob()["spec"]["rayClusterSpec"]
    assert cluster["authOptions"] == {"mode": "token"}
    (locked,) = re.findall(r"^ray==(\S+)", (ROOT / "requirements" / "gpu.lock").read_text(), re.M)
    dockerfile = (EXAMPLES / "kuberay" / "Dockerfile").read_text()
    assert f'"ray[default]=={locked}"' in dockerfile
    assert cluster["rayVersion"] == locked
    script = (EXAMPLES / "kuberay" / "train.sh").read_text()
    config = load_config(ROOT / path for path in re.findall(r"--config (\S+)", script))
    from refblend.workers.pools import plan_pools, totals

    (group,) = cluster["workerGroupSpecs"]
    limits = group["template"]["spec"]["containers"][0]["resources"]["limits"]
    cpus, gpus = totals(plan_pools(config))
    assert gpus <= group["replicas"] * int(limits["nvidia.com/gpu"])
    assert cpus <= group["replicas"] * int(limits["cpu"])
    groups = [cluster["headGroupSpec"], group]
    mounts = [g["template"]["spec"]["containers"][0]["volumeMounts"] for g in groups]
    assert mounts[0] == mounts[1]
    entrypoint = rayjob()["spec"]["entrypoint"].split()
    assert Path(entrypoint[1]).relative_to("/refblend") == Path("examples/kuberay/train.sh")


FAKES = {
    # The nodes of the job are the addresses of the namespaces.
    "scontrol": """
test "$*" = "show hostnames nodes[1-2]"
printf "10.77.0.1\\n10.77.0.2\\n"
""",
    "srun": """
for word in "$@"; do
    shift
    case $word in
    --nodelist=10.77.0.1) node=a ;;
    --nodelist=10.77.0.2) node=b ;;
    --*) ;;
    *) exec ip netns exec "${NETNS_PREFIX:-refblend}-$node" "$word" "$@" ;;
    esac
done""",
}


@pytest.mark.parametrize("status", [0, 2])
def test_the_slurm_script_starts_a_node_each_and_ends_as_the_run_does(
    tmp_path: Path, status: int
) -> None:
    """With programs that only tell how they were called: no Ray, no run."""
    told = f'echo "$(basename "$0") $*" >> {tmp_path}/told'
    token = f"stat -c %a $RAY_AUTH_TOKEN_PATH >> {tmp_path}/modes"
    fakes = {
        "scontrol": "printf 'one\\ntwo\\n'",
        "srun": 'for w in "$@"; do case $w in --*) shift ;; *) exec "$@" ;; esac; done',
        "getent": 'test "$2" = one && echo "10.0.0.1 STREAM" || echo "10.0.0.2 STREAM"',
        "ray": f"{told}; {token}; echo $$ >> {tmp_path}/pids; exec sleep 60",
        "python": "sleep 0.5",
        "refblend": f"{told}; exit {status}",
    }
    for name, body in fakes.items():
        (tmp_path / name).write_text(f"#!/usr/bin/env bash\n{body}\n")
        (tmp_path / name).chmod(0o755)
    environment = {
        "PATH": f"{tmp_path}:{os.environ['PATH']}",
        "REFBLEND_BIN": str(tmp_path),
        "SLURM_JOB_ID": "7",
        "SLURM_JOB_NODELIST": "nodes",
        "SLURM_CPUS_PER_TASK": "3",
        "SLURM_GPUS_ON_NODE": "4",
    }
    done = subprocess.run(
        ["bash", SCRIPT, "trainer.seed=1"], cwd=tmp_path, env=environment, timeout=30
    )
    assert done.returncode == status
    *rays, run = (tmp_path / "told").read_text().splitlines()
    common = "ray start --block --disable-usage-stats --node-ip-address=10.0.0.{} "
    common += "--num-cpus=3 --num-gpus=4 "
    assert sorted(rays) == [
        common.format(1) + "--head --port=6379 --include-dashboard=false",
        common.format(2) + "--address=10.0.0.1:6379",
    ]
    assert run == "refblend train trainer.seed=1 ray.address=10.0.0.1:6379"
    assert (tmp_path / "modes").read_text().split() == ["600", "600"]
    (logs,) = (tmp_path / "runs").glob(".ray-7.*")
    assert stat.S_IMODE(logs.stat().st_mode) == 0o700
    assert not (logs / "token").exists()
    left = [pid for pid in (tmp_path / "pids").read_text().split() if Path("/proc", pid).exists()]
    assert left == [], "Ray outlived the job"


@pytest.fixture
def slurm(tmp_path: Path) -> Iterator[dict[str, str]]:
    """The environment of a job whose two nodes are namespaces without a Ray of their own."""
    for name, body in FAKES.items():
        fake = tmp_path / "fakes" / name
        fake.parent.mkdir(exist_ok=True)
        fake.write_text(f"#!/usr/bin/env bash\nset -e\n{body}\n")
        fake.chmod(0o755)
    binaries = Path(sys.executable).parent
    folder = tempfile.mkdtemp(prefix="slurm-", dir="/tmp")  # sockets' paths must be short
    environment = os.environ | {
        "PATH": f"{tmp_path / 'fakes'}:{os.environ['PATH']}",
        "RAY": str(binaries / "ray"),
        "REFBLEND_BIN": str(binaries),
        "RAY_TMPDIR": folder,
        "RAY_OPTIONS": "--object-store-memory=150000000",
        "SLURM_JOB_ID": "7",
        "SLURM_JOB_NODELIST": "nodes[1-2]",
        "SLURM_CPUS_PER_TASK": "3",
    }

    def call(*words: str) -> None:
        command = ["bash", NODES, words[0], f"{folder}/nodes", *words[1:]]
        subprocess.run(command, check=True, env=environment, timeout=180)

    try:
        call("up")
        call("stop", "a")
        call("stop", "b")
        yield environment
    finally:
        call("down")
        shutil.rmtree(folder, ignore_errors=True)


@pytest.mark.engine
@pytest.mark.slow
@pytest.mark.skipif(bool(REFUSAL), reason=str(REFUSAL))
def test_the_slurm_script_trains_on_two_nodes(slurm: dict[str, str], tmp_path: Path) -> None:
    """The judge is pinned to the second node, so the run needs both."""
    import common  # of benchmarks/; it loads torch

    tokenizer = common.embedded_tokenizer()
    common.make_model(tmp_path / "actor", tokenizer)
    common.make_model(tmp_path / "judge", tokenizer, seed=1)
    common.prepare_data(tmp_path)
    settings = [
        *common.run_overrides(tmp_path, Path("runs/mine"), 2),
        "data.train_batch_size=4",
        "actor_rollout_ref.rollout.n=2",
        "actor_rollout_ref.actor.ppo_mini_batch_size=null",
        "actor_rollout_ref.actor.node=10.77.0.1",
        "algorithm.ref_quality_score.scoring.node=10.77.0.2",
        "trainer.save_freq=0",
        "trainer.logger=[]",
    ]
    configs = [word for path in common.CONFIGS for word in ("--config", str(path))]
    paths = [str(ROOT / "benchmarks"), os.environ.get("PYTHONPATH", "")]
    done = subprocess.run(
        ["bash", SCRIPT, *configs, *settings],
        cwd=tmp_path,
        env=slurm | {"PYTHONPATH": os.pathsep.join(filter(None, paths))},
        capture_output=True,
        text=True,
        timeout=400,
    )
    logs = list((tmp_path / "runs").glob(".ray-7.*"))
    told = "".join(path.read_text() for path in logs[0].glob("*.log"))
    assert done.returncode == 0, done.stdout + done.stderr + told
    assert len((tmp_path / "runs" / "mine" / "metrics.jsonl").read_text().splitlines()) == 2
    assert sorted(path.name for path in logs[0].iterdir()) == ["10.77.0.1.log", "10.77.0.2.log"]
    assert stat.S_IMODE(logs[0].stat().st_mode) == 0o700
    for node in "ab":
        prefix = os.environ.get("NETNS_PREFIX", "refblend")
        left = subprocess.run(["ip", "netns", "pids", f"{prefix}-{node}"], capture_output=True)
        assert left.stdout == b"", "Ray outlived the job"
