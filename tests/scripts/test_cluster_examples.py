"""examples/slurm and examples/kuberay, as far as they can be checked without these systems."""

import json
import os
import re
import stat
import subprocess
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from refblend.config import load_config

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
SCRIPT = EXAMPLES / "slurm" / "train.sbatch"
SCHEMA = json.loads((Path(__file__).parent / "rayjob.schema.json").read_text())


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
    from refblend.workers.placement import processes_of, totals

    (group,) = cluster["workerGroupSpecs"]
    limits = group["template"]["spec"]["containers"][0]["resources"]["limits"]
    cpus, gpus = totals(processes_of(config))
    assert gpus <= group["replicas"] * int(limits["nvidia.com/gpu"])
    assert cpus <= group["replicas"] * int(limits["cpu"])
    groups = [cluster["headGroupSpec"], group]
    mounts = [g["template"]["spec"]["containers"][0]["volumeMounts"] for g in groups]
    assert mounts[0] == mounts[1]
    entrypoint = rayjob()["spec"]["entrypoint"].split()
    assert Path(entrypoint[1]).relative_to("/refblend") == Path("examples/kuberay/train.sh")


@pytest.mark.parametrize("status", [0, 2])
def test_the_slurm_script_starts_a_node_each_and_ends_as_the_run_does(tmp_path, status) -> None:
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
