"""A blending strategy of the user's own, and prompts that depend on the day."""

import shutil
import sys
from pathlib import Path

import pytest

from refblend.config import load_config
from refblend.errors import ConfigError
from refblend.identity import reads_total_steps
from refblend.lookup import get_strategy
from refblend.ppo.weights import WeightParams, weight_for
from refblend.trainer.datasets import load_run_data
from refblend.trainer.preflight import inputs_of, preflight

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


def test_a_function_gives_the_weight(module):
    strategy = get_strategy("own_strategies:square")
    params = WeightParams(max_weight=0.4, entropy_high_threshold=1.0)
    assert weight_for(strategy, 0.5, 1, 10, params) == pytest.approx(0.1)
    warming = WeightParams(max_weight=0.4, max_weight_warmup_steps=4)
    assert weight_for(strategy, 0.0, 1, 10, warming) < 0.4


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("own_strategies:large", "gave 2.0"),
        ("own_strategies:raises", r"KeyError: 'weight' .*own_strategies.py, line 5"),
        ("own_strategies:few", "TypeError"),
        ("own_strategies:absent", "defines no absent"),
        ("no_such_module:square", "No module named"),
        ("own_strategies.py:square", r"without \.py"),
    ],
)
def test_check_refuses_what_cannot_be_imported_or_called(tiny_config, module, name, said):
    with pytest.raises(ConfigError, match=said) as caught:
        preflight(tiny_config(f"{KEY}={name}"))
    assert KEY in str(caught.value)
    assert "lookup.py" not in str(caught.value)


def test_its_source_belongs_to_the_runs_that_use_it(tiny_config, module):
    own = tiny_config(f"{KEY}=own_strategies:square")
    preflight(own)
    assert module in inputs_of(own)[0]
    assert reads_total_steps(own), "it may"
    off = tiny_config(f"{KEY}=own_strategies:square", "algorithm.ref_quality_score.enable=false")
    assert module not in inputs_of(off)[0]
    assert module not in inputs_of(tiny_config())[0]


def test_a_reward_function_of_the_users_own_is_an_input_and_ours_is_none(tmp_path):
    files = [ROOT / "params" / "ppo.yaml", ROOT / "params" / "scale" / "cpu.yaml"]
    mine = tmp_path / "rewards.py"
    mine.write_text("def compute_score(**_): return 1.0\n")

    def sources(function: str) -> list[str]:
        found, _ = inputs_of(load_config(files, [f"reward.custom_reward_function={function}"]))
        return [file.name for file in found if file.suffix == ".py"]

    assert sources(f"{{path: {mine}}}") == ["rewards.py"]
    assert sources("json.decoder:scanstring") == ["decoder.py"]
    ours = sources("refblend.rewards.reasoning_gym:compute_score")
    assert ours == [], "it has a version instead"


def test_another_chat_template_gives_other_prompts(tiny_config, tmp_path):
    """As a template with a date does from one day to the next."""
    config = tiny_config()
    model = shutil.copytree(config.actor_rollout_ref.model.path, tmp_path / "dated")
    template = model / "chat_template.jinja"
    template.write_text("Monday. " + template.read_text())
    dated = load_run_data(tiny_config(f"actor_rollout_ref.model.path={model}")).prompts_hash
    first, again = (load_run_data(config).prompts_hash for _ in range(2))
    assert first == again != dated
