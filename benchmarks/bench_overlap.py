"""The judge concurrent with the log-prob passes or before them: how much of its time is hidden?

`python benchmarks/bench_overlap.py` trains four short runs at scale cpu in turn, for a few rounds:
the judge in the shared placement group or in its own, and awaited before the actor's and the
reference policy's passes are launched (serial) or not (overlapped). The scoring phase lies between
generation and advantages. Its wall time shows how much of the judge is hidden; on two cores with
one thread per process, judge and passes can use a core each. Other processes may share these cores,
so ratios are taken within a round.
"""

import statistics
import tempfile
from itertools import product
from pathlib import Path

import common
import runs

STEPS = 6
ROUNDS = 3
POOLS = {"shared": "global_pool", "dedicated": "judge_pool"}
WAYS = {"serial": "false", "overlapped": "true"}
OTHER_STAGES = ("gen", "adv", "update_actor", "update_weights")


def phase(folder: Path, name: str, pool: str, way: str) -> dict[str, float]:
    """Wall seconds of the scoring phase and of the judge within it, medians over a run's steps."""
    scoring = "algorithm.ref_quality_score.scoring"
    settings = [
        *runs.overrides(folder, STEPS, name),
        "algorithm.use_kl_in_reward=true",  # so that the reference policy has a pass as well
        f"{scoring}.resource_pool={POOLS[pool]}",
        f"{scoring}.overlap={WAYS[way]}",
    ]
    _, lines = runs.run_training(folder / name, settings, STEPS)
    step = [
        line["timing_s/step"] - sum(line[f"timing_s/{stage}"] for stage in OTHER_STAGES)
        for line in lines
    ]
    judge = [line["timing_s/ref_quality_score"] for line in lines]
    return {"phase": statistics.median(step), "judge": statistics.median(judge)}


def hidden(serial: dict[str, float], overlapped: dict[str, float]) -> float:
    """Share of the judge's time that the overlap saves."""
    return (serial["phase"] - overlapped["phase"]) / serial["judge"]


def main() -> None:
    cases = list(product(POOLS, WAYS))
    rounds: list[dict[str, dict[str, float]]] = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        common.prepare_inputs(folder)
        for number in range(ROUNDS):
            rounds.append(
                {
                    f"{pool}, {way}": phase(folder, f"{pool}_{way}_{number}", pool, way)
                    for pool, way in cases
                }
            )
    first = "shared, serial"
    ratios = {
        case: statistics.median(r[case]["phase"] / r[first]["phase"] for r in rounds)
        for case in rounds[0]
    }
    shares = {
        pool: statistics.median(
            hidden(r[f"{pool}, serial"], r[f"{pool}, overlapped"]) for r in rounds
        )
        for pool in POOLS
    }
    judge = statistics.median(r[first]["judge"] / r[first]["phase"] for r in rounds)
    common.show(
        f"wall time of the scoring phase, as a ratio to {first} (the judge is {judge:.2f} of it)",
        ["case", "ratio"],
        [list(row) for row in ratios.items()],
    )
    common.show(
        "share of the judge's time that is hidden",
        ["pool", "share"],
        [list(s) for s in shares.items()],
    )
    common.record(
        "overlap",
        "wall time of an overlapped scoring phase, as a ratio to a serial one (shared pool)",
        ratios["shared, overlapped"],
        1.0,
        {"ratios": ratios, "hidden_share_of_the_judge": shares, "seconds": rounds},
    )


if __name__ == "__main__":
    main()
