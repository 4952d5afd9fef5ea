"""A blending strategy of the user's own, and prompts that depend on the day."""

import json
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from refblend.config import RefblendConfig, load_config
from refblend.errors import ConfigError
from refblend.identity import reads_total_steps
from refblend.lookup import get_strategy
from refblend.ppo.weights import StepContext, WeightParams, weight_for
from refblend.trainer.datasets import load_run_data
from refblend.trainer.preflight import inputs_of, preflight

Make = Callable[..., RefblendConfig]
ROOT = Path(__file__).parents[2]
KEY = "algorithm.ref_quality_score.strategy"
SOURCE = """
def square(entropy, params, at):
    return params.max_weight * (1.0 - min(1.0, entropy / params.entropy_high_threshold)) ** 2
def large(entropy, params, at): return 2.0
def raises(entropy, params, at): return {}["weight"]
def few(entropy): return 0.0
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    file = tmp_path / "own_strategies.py"
    file.write_text(SOURCE)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, file.stem, raising=False)
    return file


def test_a_function_gives_the_weight(module: Path) -> None:
    strategy = get_strategy("own_strategies:square")
    params = WeightParams(max_weight=0.4, entropy_high_threshold=1.0)
    assert weight_for(strategy, 0.5, 1, 10, params) == pytest.approx(0.1)
    warming = WeightParams(max_weight=0.4, max_weight_warmup_steps=4)
    assert weight_for(strategy, 0.0, 1, 10, warming) < 0.4
    assert get_strategy("linear").weight(0.5, params, StepContext(1, 10)) == pytest.approx(0.2)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("own_strategies:large", "gave 2.0"),
        ("own_strategies:raises", r"KeyError: 'weight' .*own_strategies.py, line 5"),
        ("own_strategies:few", "TypeError"),
        ("own_strategies:absent", "no function absent"),
        ("no_such_module:square", "No module named"),
    ],
)
def test_check_refuses_what_cannot_be_imported_or_called(
    tiny_config: Make, module: Path, name: str, said: str
) -> None:
    with pytest.raises(ConfigError, match=said) as caught:
        preflight(tiny_config(f"{KEY}={name}"))
    assert KEY in str(caught.value)


def test_its_source_belongs_to_the_runs_that_use_it(tiny_config: Make, module: Path) -> None:
    own = tiny_config(f"{KEY}=own_strategies:square")
    preflight(own)
    assert module in inputs_of(own)[0]
    assert reads_total_steps(own), "it may"
    off = tiny_config(f"{KEY}=own_strategies:square", "algorithm.ref_quality_score.enable=false")
    assert module not in inputs_of(off)[0]
    assert module not in inputs_of(tiny_config())[0]


def test_our_own_reward_function_is_no_input() -> None:
    files = [ROOT / "params" / "ppo.yaml", ROOT / "params" / "scale" / "cpu.yaml"]
    ours = "reward.custom_reward_function=refblend.rewards.reasoning_gym:compute_score"
    found, _ = inputs_of(load_config(files, [ours]))
    assert not [file for file in found if file.suffix == ".py"], "it has a version instead"


@pytest.fixture
def zone() -> Iterator[Callable[[str], None]]:
    def move(name: str) -> None:
        os.environ["TZ"] = name
        time.tzset()

    before = os.environ.get("TZ")
    yield move
    os.environ.pop("TZ", None)
    if before is not None:
        os.environ["TZ"] = before
    time.tzset()


def test_a_chat_template_with_a_date_gives_other_prompts_elsewhere(
    tiny_config: Make, tmp_path: Path, zone: Callable[[str], None]
) -> None:
    config = tiny_config()
    model = shutil.copytree(config.actor_rollout_ref.model.path, tmp_path / "dated")
    for name in ("chat_template.jinja", "tokenizer_config.json"):
        file = model / name
        if file.exists() and name.endswith("jinja"):
            file.write_text("{{ strftime_now('%H %z') }}" + file.read_text())
        elif file.exists() and "chat_template" in (settings := json.loads(file.read_text())):
            settings["chat_template"] = "{{ strftime_now('%H %z') }}" + settings["chat_template"]
            file.write_text(json.dumps(settings))
    dated = tiny_config(f"actor_rollout_ref.model.path={model}")
    hashes = []
    for name in ("UTC", "UTC", "Asia/Tokyo"):
        zone(name)
        hashes.append(load_run_data(dated).prompts_hash)
    assert hashes[0] == hashes[1] != hashes[2]
    assert load_run_data(config).prompts_hash not in hashes
