"""The page of metrics defines each one once, and all that the sources name."""

import re
from collections import Counter
from pathlib import Path

import torch

from refblend.ppo.correction import mismatch_metrics
from refblend.ppo.weights import STRATEGIES

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "explanation" / "algorithms.md").read_text(encoding="utf-8")
TABLE = (ROOT / "docs" / "reference" / "metrics.md").read_text(encoding="utf-8")
GROUPS = (
    "actor|critic|incidents|perf|prompt_length|response_length|timing_s|training|val-core|val-aux"
)


def documented():
    names = []
    for line in TABLE.splitlines():
        if line.startswith("| `"):
            names += re.findall(r"`([^`]+)`", line.split("|")[1])
    return names


def test_each_metric_is_defined_once():
    names = documented()
    assert len(names) > 80
    assert [name for name, count in Counter(names).items() if count > 1] == []
    assert all(re.match(rf"({GROUPS})/", name) for name in names)


def test_what_the_sources_name_is_documented():
    known = set(documented())
    literal = re.compile(rf'"((?:{GROUPS})/[A-Za-z0-9_/@-]+)"')
    sources = [*ROOT.glob("src/refblend/ppo/*.py"), *ROOT.glob("src/refblend/trainer/*.py")]
    sources += ROOT.glob("src/refblend/scoring/*.py")
    named = {name for path in sources for name in literal.findall(path.read_text("utf-8"))}
    # a name without its last part is the prefix of mean, max and min, or an example's source
    spread = {name.rsplit("/", 1)[0] for name in known if name.endswith("/mean")}
    named = {re.sub(r"^(val-\w+)/refblend/\w+/", r"\1/<source>/", name) for name in named}
    prefixes = {"actor/ref_quality"}
    assert sorted(named - known - spread - prefixes) == []
    assert set(mismatch_metrics(*torch.zeros(3, 1, 1))) <= known


def test_each_strategy_is_documented():
    for name in STRATEGIES:
        assert f"| `{name}` |" in TEXT
