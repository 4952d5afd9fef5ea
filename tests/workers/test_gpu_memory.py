"""Memory of GPUs: the formula against a measured run, and what it refuses."""

import json
import math
import re
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path

import pytest
import yaml

from refblend.config import RefblendConfig, load_config
from refblend.errors import ConfigError, ResourceError
from refblend.workers.gpu_memory import GIB, Model, check_gpu_memory, gpu_needs, nearest, peak
from refblend.workers.placement import on_devices
from refblend.workers.pools import check_machine
from refblend.workers.roles import ACTOR, JUDGE

PARAMS = Path(__file__).resolve().parents[2] / "params"
SHARES = [
    f"{engine}.gpu_memory_utilization"
    for engine in ("actor_rollout_ref.rollout", "algorithm.ref_quality_score.scoring")
]
QWEN = {  # parameters, hidden, MLP, layers: their config.json
    "0.5B": (494_032_768, 896, 4864, 24),
    "1.5B": (1_543_714_304, 1536, 8960, 28),
    "3B": (3_085_938_688, 2048, 11008, 36),
    "7B": (7_615_616_512, 3584, 18944, 28),
}


def write_model(folder: Path, size: str) -> Path:
    """A model's header and config.json; its weights are a hole in the file."""
    parameters, hidden, mlp, layers = QWEN[size]
    folder.mkdir(parents=True)
    sizes = {"hidden_size": hidden, "intermediate_size": mlp, "num_hidden_layers": layers}
    (folder / "config.json").write_text(json.dumps(sizes | {"vocab_size": 151_936}))
    tensor = {"dtype": "BF16", "shape": [parameters], "data_offsets": [0, 2 * parameters]}
    header = json.dumps({"weights": tensor}).encode()
    header += b" " * (-len(header) % 8)
    with (folder / "model.safetensors").open("wb") as file:
        file.write(len(header).to_bytes(8, "little") + header)
        file.truncate(8 + len(header) + 2 * parameters)
    return folder


def scale_gpu(
    tmp_path: Path, size: str = "0.5B", *overrides: str, more: Sequence[Path] = ()
) -> RefblendConfig:
    actor, judge = write_model(tmp_path / "actor", size), write_model(tmp_path / "judge", "1.5B")
    scoring = "algorithm.ref_quality_score.scoring"
    models = (f"actor_rollout_ref.model.path={actor}", f"{scoring}.model_path={judge}")
    files = [PARAMS / "ppo.yaml", PARAMS / "scale" / "gpu.yaml", *more]
    return load_config(files, [*models, *overrides])


def test_the_formula_gives_the_measured_update(tmp_path):
    """Row `memory` of results/gpu/check.md, 16,384 tokens; its head held 2²⁶ logits."""
    model = Model.of(str(write_model(tmp_path / "actor", "0.5B")), "key")
    found = 16 * model.parameters + model.activations(16384, "bfloat16", model.layers)
    found -= 10 * (2**29 - 2**26)
    record = (PARAMS.parent / "results" / "gpu" / "check.md").read_text()
    measured = float(record.split("| memory | ")[1].split(" GiB")[0])
    assert found / GIB == pytest.approx(measured, rel=0.1)


def test_scale_gpu_on_a_card_that_is_too_small(tmp_path):
    config = scale_gpu(tmp_path)
    assert len(on_devices(gpu_needs(config, 16 * GIB))) == 1
    with pytest.raises(ResourceError, match=r"actor .*GiB kept and .* at work; .*peak") as refusal:
        check_gpu_memory(config, 16 * GIB)
    changes = str(refusal.value).split("This fits: ")[1].rstrip(".").split()
    check_gpu_memory(scale_gpu(tmp_path / "again", "0.5B", *changes), 16 * GIB)


def test_the_table_of_the_page_about_gpus(tmp_path):
    """Every cell of docs/how-to/gpu.md, with the settings that the page gives."""
    page = (PARAMS.parent / "docs" / "how-to" / "gpu.md").read_text()
    block = yaml.safe_load(page.split("for N GPUs write N for 8:\n\n```yaml\n")[1].split("```")[0])
    several = tmp_path / "several.yaml"
    lines = [line.strip("| ").split(" | ") for line in page.splitlines() if " × 24 GB" in line]
    head = [[int(n) for n in re.findall(r"\d+", cell)] for cell in lines[0][1:]]
    for row in re.findall(r"^\| (\S+B) \| (\S.*?) \|$", page, re.MULTILINE):
        for (number, device), cell in zip(head, row[1].split(" | "), strict=True):
            text = yaml.safe_dump(block).replace(": 8", f": {number}")
            several.write_text(text if number > 1 else "{}")
            shares = (f"{key}={cell[-3:]}" for key in SHARES if cell.startswith("engines"))
            folder = tmp_path / row[0] / f"{number}-{device}"
            config = scale_gpu(folder, row[0], *shares, more=[several])
            try:
                highest = max(peak(held) for held in on_devices(gpu_needs(config, device * GIB)))
            except ResourceError:
                highest = math.inf
            assert (highest <= device * GIB) == (cell != "no")
            if cell.isdigit():
                assert math.ceil(highest / GIB) == int(cell)


def test_the_whole_of_7b_fits_on_no_single_card(tmp_path):
    config = scale_gpu(tmp_path, "7B")
    assert nearest(config, 80 * GIB) == []
    with pytest.raises(ResourceError, match="LoRA"):
        check_gpu_memory(config, 80 * GIB)


def test_engines_that_sleep_take_turns_and_others_add_up(tmp_path):
    sleeping = gpu_needs(scale_gpu(tmp_path), 80 * GIB)
    key = "actor_rollout_ref.rollout.sleep=false"
    awake = gpu_needs(scale_gpu(tmp_path / "awake", "0.5B", key), 80 * GIB)
    assert peak(awake) > peak(sleeping) + 25 * GIB
    judges = [need for need in sleeping if need.role == "judge"] * 2
    assert peak(judges) == 2 * peak(judges[:1]), "engines of a role wake together"


KL, REFERENCE = "algorithm.use_kl_in_reward=true", "actor_rollout_ref.ref"
OWN = (KL, f"{REFERENCE}.colocated=false", f"{REFERENCE}.fsdp_config.num_gpus_per_worker=0.05")


def test_passes_of_actor_and_reference_add_up(tmp_path):
    alone = peak(gpu_needs(scale_gpu(tmp_path, "1.5B"), 16 * GIB))
    with_kl = gpu_needs(scale_gpu(tmp_path / "kl", "1.5B", *OWN), 16 * GIB)
    reference = next(need for need in with_kl if need.role == "ref")
    assert peak(with_kl) == pytest.approx(alone + reference.kept + reference.working)


def test_a_colocated_reference_adds_its_weights_alone(tmp_path):
    alone = gpu_needs(scale_gpu(tmp_path, "1.5B"), 16 * GIB)
    with_kl = gpu_needs(scale_gpu(tmp_path / "kl", "1.5B", KL), 16 * GIB)
    assert len(with_kl) == len(alone)
    assert peak(with_kl) == pytest.approx(peak(alone) + 2 * QWEN["1.5B"][0])


def test_a_rank_holds_its_shard_and_a_pass(tmp_path):
    fsdp = "actor_rollout_ref.actor.fsdp_config"
    ranks = (f"{fsdp}.world_size=8", f"{fsdp}.num_gpus_per_worker=0.6")
    actor = gpu_needs(scale_gpu(tmp_path, "7B", *ranks), 80 * GIB)[0]
    assert actor.kept == pytest.approx(16 * QWEN["7B"][0] / 8 + GIB / 2)
    assert actor.working == gpu_needs(scale_gpu(tmp_path / "alone", "7B"), 80 * GIB)[0].working


def test_a_share_below_the_weights_is_refused(tmp_path):
    key = "algorithm.ref_quality_score.scoring.gpu_memory_utilization"
    with pytest.raises(ResourceError, match=f"judge needs .*{key}=0.05"):
        gpu_needs(scale_gpu(tmp_path, "0.5B", f"{key}=0.05"), 40 * GIB)


def test_pretended_gpus_are_checked_before_anything_starts(tmp_path, monkeypatch):
    monkeypatch.setattr("refblend.workers.pools.estimate_available_memory", lambda: 2**40)
    config = scale_gpu(tmp_path, "1.5B")
    monkeypatch.setenv("REFBLEND_PRETENDED_GPUS", "80")
    check_machine(config)
    monkeypatch.setenv("REFBLEND_PRETENDED_GPUS", "24")
    with pytest.raises(ResourceError, match="does not fit into 24 GiB"):
        check_machine(config)
    monkeypatch.setenv("REFBLEND_PRETENDED_GPUS", "80GB")
    with pytest.raises(ConfigError, match="REFBLEND_PRETENDED_GPUS=80GB is not a list of sizes"):
        check_machine(config)


def test_shares_that_no_device_has_room_for_are_refused(tmp_path, monkeypatch):
    """0.6 + 0.3 leave no 0.2 on any device, although the sum fits; 0.6 + 0.2 + 0.2 do."""
    monkeypatch.setattr("refblend.workers.pools.estimate_available_memory", lambda: 2**42)
    monkeypatch.setenv("REFBLEND_PRETENDED_GPUS", ",".join(8 * ["80"]))
    ranks, rollout = "actor_rollout_ref.actor.fsdp_config", "actor_rollout_ref.rollout"
    eight = (
        f"{ranks}.world_size=8",
        f"{ranks}.num_gpus_per_worker=0.6",
        f"{rollout}.num_engines=8",
    )
    config = scale_gpu(tmp_path / "wide", "0.5B", *eight, f"{rollout}.num_gpus=0.3")
    with pytest.raises(ResourceError, match=r"asks for 9 GPUs \(.*1 × judge 0\.2; no") as refusal:
        check_machine(config)
    assert f"{rollout}.num_gpus" in refusal.value.remedy
    judges = "algorithm.ref_quality_score.scoring.num_engines=8"
    check_machine(scale_gpu(tmp_path, "0.5B", *eight, f"{rollout}.num_gpus=0.2", judges))


def test_kl_never_puts_a_policy_on_the_cpu_silently(tmp_path):
    told = r"ref\.fsdp_config\.num_gpus_per_worker=0 puts ref on.*set .*ref\.colocated=true"
    with pytest.raises(ConfigError, match=told):
        check_machine(scale_gpu(tmp_path, "0.5B", KL, f"{REFERENCE}.colocated=false"))


@pytest.mark.parametrize(
    ("device", "told"),
    [(24, "rollout needs"), (40, "This fits: .*ppo_max_token_len_per_gpu=4096"), (80, "")],
)
def test_gpu7b_trains_an_adapter_on_one_large_card(tmp_path, device, told):
    actor = write_model(tmp_path / "actor", "7B")
    files = [PARAMS / "ppo.yaml", PARAMS / "scale" / "gpu7b.yaml"]
    config = load_config(files, [f"actor_rollout_ref.model.path={actor}"])
    with pytest.raises(ResourceError, match=told) if told else nullcontext():
        check_gpu_memory(config, device * GIB)


def test_host_memory_has_a_model_once_and_that_of_a_judge_while_it_sleeps(tmp_path):
    """Rank 0 reads the actor in float32; an engine that stays awake keeps no weights there."""
    ranks = "actor_rollout_ref.actor.fsdp_config"
    config = scale_gpu(tmp_path, "1.5B", f"{ranks}.world_size=4", f"{ranks}.num_gpus_per_worker=1")
    parameters = QWEN["1.5B"][0]
    assert ACTOR.memory(config) == pytest.approx(4 * parameters + 4 * GIB / 2)
    assert JUDGE.memory(config) == pytest.approx(2 * parameters + GIB)
    awake = scale_gpu(tmp_path / "awake", "1.5B", "algorithm.ref_quality_score.scoring.sleep=false")
    assert JUDGE.memory(awake) == pytest.approx(GIB)
