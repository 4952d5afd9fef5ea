"""Compare the golden cases with another commit on this machine, or store their values.

    scripts/golden.py --against HEAD~20            every difference; status 1 if there is one
    scripts/golden.py --against main judge_parse   of some cases
    scripts/golden.py --record                     store the values of this processor

CONTRIBUTING.md says when to do which.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1] / "tests" / "golden"))

import golden_store as store
from golden_cases import CASES


def compare(ref: str, names: Sequence[str]) -> int:
    """Print every difference between ``ref`` and this tree; returns the exit status."""
    with store.tree_of(ref) as tree:
        before, after = store.run_cases(tree, names), store.run_cases(store.ROOT, names)
    status = 0
    for name, now in after.items():
        then = before[name]
        if "values" not in now:
            print(f"{name}: failed here\n{now.get('failed') or now['skipped']}")
            status = 1
        elif "values" not in then:
            reason = str(then.get("skipped") or then["failed"]).strip().splitlines()[-1]
            print(f"{name}: skipped, {ref} cannot run it ({reason})")
        else:
            found = store.differences(then["values"], now["values"])
            print(f"{name}: {f'{len(found)} differences' if found else 'equal'}")
            print("".join(f"  {line}\n" for line in found), end="")
            status = status or bool(found)
    return int(status)


def record(names: Sequence[str]) -> int:
    """Store the values of the cases, if versions moved as they must; returns the exit status."""
    path = store.path_of(store.processor_kind())
    old, now = store.load(path), store.numerics()
    names = list(names or CASES)
    results = store.run_cases(store.ROOT, names)
    if failed := {n: r for n, r in results.items() if "values" not in r}:
        for name, result in failed.items():
            print(f"{name}: {result.get('failed') or result['skipped']}")
        return 1
    values = {name: result["values"] for name, result in results.items()}
    kept = {n: v for n, v in old["cases"].items() if n in CASES and n not in values}
    bumped = {p for p, version in old["numerics"].items() if now.get(p) != version}
    same_libraries = old["libraries"] == store.libraries()
    stale = [n for n in kept if not same_libraries or bumped & set(CASES[n].purposes)]
    if stale:
        print(f"record {', '.join(stale)} too: their versions or the libraries have changed")
        return 1
    if same_libraries:
        purposes = {name: case.purposes for name, case in CASES.items()}
        changed = {
            n: bool(store.differences(v, values.get(n, v)))
            for n, v in old["cases"].items()
            if n in CASES
        }
        if broken := store.broken_rule(purposes, changed, old["numerics"], now):
            print("\n".join(broken))
            return 1
    new = {"libraries": store.libraries(), "numerics": now, "cases": kept | values}
    path.parent.mkdir(exist_ok=True)
    path.write_text(store.dump(new), encoding="utf-8")
    print(f"{path}: {len(values)} cases recorded, {len(kept)} kept")
    return 0


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--against", metavar="REF", help="commit to compare this tree with")
    what.add_argument("--record", action="store_true", help="store this processor's values")
    parser.add_argument("cases", nargs="*", metavar="CASE", help=f"of {', '.join(CASES)}")
    given = parser.parse_args()
    if unknown := sorted(set(given.cases) - CASES.keys()):
        parser.error(f"there is no case {', '.join(unknown)}")
    try:
        return record(given.cases) if given.record else compare(given.against, given.cases)
    except store.GoldenError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
