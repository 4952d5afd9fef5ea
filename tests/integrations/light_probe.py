"""The wheel in an environment that holds only what it asks for: ``light_probe.py ROLLOUTS MODEL``.

Prints the versions that ran, as JSON.
"""

import importlib.metadata
import importlib.util
import json
import subprocess
import sys
import time
from pathlib import Path

import torch

begun = time.process_time()
import refblend  # noqa: E402
from refblend import (  # noqa: E402
    Judge,
    WeightParams,
    avg_response_entropy,
    blend_rewards,
    expand_quality,
    weight_for,
)
from refblend.scoring.parsing import parse_score  # noqa: E402

seconds = time.process_time() - begun
assert seconds < 1, f"import refblend took {seconds:.2f} s after torch"
for heavy in ("ray", "vllm", "openai", "seaborn", "snakemake"):
    assert importlib.util.find_spec(heavy) is None, f"{heavy} is installed here"

rollouts, model = sys.argv[1:]
mask = torch.ones(2, 3)
entropy = avg_response_entropy(torch.full((2, 3), 0.5), mask)
weight = weight_for("linear", entropy, 1, 10, WeightParams(max_weight=0.4))
assert weight == 0.2, weight
quality = expand_quality(torch.tensor([1.0, 0.5]), mask, "terminal")
blended = blend_rewards(torch.zeros(2, 3), quality, mask, weight)
assert torch.allclose(blended[:, -1], torch.tensor([0.2, 0.1]))
assert parse_score(r"fine \box{0.7}").score == 0.7

with Judge.open(model, engine="hf", templates="embedded", max_new_tokens=4) as judge:
    (result,) = judge.score(["3+4?"], ["3+4=7. #### 7"])
    assert 0 <= result.score <= 1


def command(*arguments: str) -> "subprocess.CompletedProcess[str]":
    code = "import sys, refblend.cli as cli; sys.argv[0] = 'refblend'; sys.exit(cli.main())"
    return subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True)


done = command("advise", rollouts, "--figure", "advice.png")
assert done.returncode == 0, done.stderr
assert Path("advice.png").stat().st_size > 10_000

packages = ("torch", "transformers", "pydantic", "numpy", "pandas", "pyarrow", "matplotlib")
found = {name: importlib.metadata.version(name) for name in packages}
place = str(Path(refblend.__file__).parents[1])
seen = {"python": sys.version.split()[0], "place": place, "import_seconds": round(seconds, 2)}
print(json.dumps(seen | found))
