"""An actor with an adapter: its gradients, its base as the reference, its saves."""

import json

import pytest
import torch
from peft import PeftModel
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

from refblend.config import RefblendConfig, load_config
from refblend.errors import CheckpointError, ConfigError
from refblend.workers import networks
from refblend.workers.fsdp_workers import ActorWorker, ReferenceWorker
from refblend.workers.lora import ADAPTER_DIR
from refblend.workers.roles import roles_of
from refblend.workers.types import MiniBatch

MODEL = "actor_rollout_ref.model"
LORA = (f"{MODEL}.lora_rank=3", f"{MODEL}.lora_alpha=6")
SCALE = 2.0


@pytest.fixture
def actor(training_config) -> ActorWorker:
    """An actor whose adapter is no longer the empty one."""
    worker = ActorWorker(training_config(*LORA), 9)
    torch.manual_seed(5)
    with torch.no_grad():
        for name, tensor in worker.network.named_parameters():
            if ".lora_B." in name:
                tensor.normal_(std=0.02)
    return worker


def gradients(worker, sequences, targets) -> dict[str, torch.Tensor]:
    rows = list(range(len(sequences)))
    mini = MiniBatch([rows[:3], rows[3:]], float(sum(sequences.response_lengths)), len(rows))
    worker.trainable._accumulate(
        mini.micro_batches, lambda rows: worker.loss(sequences, targets, mini, rows)
    )
    return {n: p.grad for n, p in worker.network.lm.named_parameters() if p.grad is not None}


def log_probs(worker, sequences, method: str = "compute_log_prob", *more: str) -> torch.Tensor:
    return getattr(worker, method)(sequences, [list(range(len(sequences)))], *more)[1][0]


@pytest.mark.parametrize("chunk", [2**24, 2**11])
def test_gradients_follow_from_the_full_gradient_by_the_chain_rule(
    actor, chunk, training_config, sequences, targets, tmp_path, monkeypatch
):
    """dB = s·dW·Aᵀ and dA = s·Bᵀ·dW, of the model with the merged weights; with both heads."""
    monkeypatch.setitem(networks.MAX_CHUNK_LOGITS, "cpu", chunk)
    actor.save(str(tmp_path))
    full = ActorWorker(training_config(f"{MODEL}.path={tmp_path}"), 9)
    found, whole = (gradients(worker, sequences, targets[0]) for worker in (actor, full))
    parameters = {n: p.detach() for n, p in actor.network.lm.named_parameters()}
    assert len(found) == 2 * 7 * actor.network.lm.config.num_hidden_layers
    for name, gradient in found.items():
        layer, part = name.split(".lora_")
        of_weight = whole[f"{layer}.weight"]
        a = parameters[f"{layer}.lora_A.default.weight"]
        b = parameters[f"{layer}.lora_B.default.weight"]
        expected = SCALE * (of_weight @ a.T if part[0] == "B" else b.T @ of_weight)
        size = float(expected.abs().max())
        assert size > 0
        assert float((gradient - expected).abs().max()) < 2e-5 * size + 1e-8


def test_without_its_adapter_the_actor_is_the_reference_bit_for_bit(
    actor, training_config, sequences
):
    reference = ReferenceWorker(training_config(), 9)
    own = log_probs(reference, sequences)
    assert float((log_probs(actor, sequences) - own).abs().max()) > 1e-3
    assert torch.equal(log_probs(actor, sequences, "as_reference", "compute_log_prob"), own)
    pooled = log_probs(actor, sequences, "as_reference", "compute_pooled_states")
    assert torch.equal(pooled, log_probs(reference, sequences, "compute_pooled_states"))
    assert float((log_probs(actor, sequences) - own).abs().max()) > 1e-3


def test_only_the_adapter_learns_and_it_starts_as_no_change(
    training_config, sequences, targets, plan
):
    config = training_config(*LORA)
    worker, reference = ActorWorker(config, 9), ReferenceWorker(training_config(), 9)
    assert torch.equal(log_probs(worker, sequences), log_probs(reference, sequences))
    before = {n: p.clone() for n, p in worker.network.lm.named_parameters()}
    worker.update(sequences, targets[0], plan(sequences, worker.config)[0], 1)
    changed = {n for n, p in worker.network.lm.named_parameters() if not p.equal(before[n])}
    assert changed == {n for n in before if ".lora_B." in n}  # of A the first gradient is 0


def test_the_start_follows_the_seed_of_the_run(training_config):
    def start(worker) -> dict[str, torch.Tensor]:
        return {n: p.clone() for n, p in worker.network.lm.named_parameters() if "lora_A" in n}

    first = ActorWorker(training_config(*LORA, "trainer.seed=1"), 9)
    second = start(ActorWorker(training_config(*LORA, "trainer.seed=2"), 9))
    assert not any(p.equal(second[n]) for n, p in start(first).items())
    first.begin_run(2)
    assert all(p.equal(second[n]) for n, p in start(first).items())


def test_a_save_is_a_model_and_an_adapter_of_peft(actor, tiny_model_dir, tmp_path):
    actor.save(str(tmp_path))
    ids = torch.arange(3, 40)[None]
    with torch.no_grad():
        expected = actor.network.lm(ids).logits
        merged = AutoModelForCausalLM.from_pretrained(tmp_path, dtype=torch.float32)
        torch.testing.assert_close(merged(ids).logits, expected, rtol=1e-4, atol=1e-5)
        base = AutoModelForCausalLM.from_pretrained(tiny_model_dir, dtype=torch.float32)
        adapted = PeftModel.from_pretrained(base, tmp_path / ADAPTER_DIR)
        assert torch.equal(adapted(ids).logits, expected)
        by_peft = adapted.merge_and_unload().state_dict()
    rounded = actor.full_weights(torch.bfloat16)
    for name, tensor in load_file(tmp_path / "model.safetensors").items():
        torch.testing.assert_close(tensor, by_peft[name], rtol=0, atol=1e-7)
        assert torch.equal(rounded[name], tensor.bfloat16()), "as an engine gets it"


def test_another_adapter_is_refused(actor, training_config, tmp_path):
    actor.save(str(tmp_path))
    for other in (f"{MODEL}.lora_rank=4", f"{MODEL}.target_modules=[q_proj]"):
        worker = ActorWorker(training_config(*LORA, other), 9)
        with pytest.raises(CheckpointError, match="another shape"):
            worker.load(str(tmp_path))
    ActorWorker(training_config(), 9).save(str(tmp_path / "full"))
    with pytest.raises(CheckpointError, match="no adapter"):
        actor.load(str(tmp_path / "full"))


@pytest.mark.parametrize(("layer", "why"), [("qkv", ": "), ("lm_head", " adapts the output")])
def test_layers_that_the_model_or_the_trainer_cannot_adapt_are_refused(training_config, layer, why):
    with pytest.raises(ConfigError, match=rf"model.target_modules=\['{layer}'\]{why}"):
        ActorWorker(training_config(*LORA, f"{MODEL}.target_modules=[{layer}]"), 9)


ADAPTER = (*LORA, "actor_rollout_ref.rollout.lora=adapter")
REFERENCE = (
    "algorithm.ref_quality_score.enable=true",
    "algorithm.ref_quality_score.scoring.kind=reference",
)


def test_the_roles_share_what_the_configuration_lets_them_share(rank_config, tmp_path):
    """Reference policy and judge need no process where the actor's base can answer for them."""
    (tmp_path / "c.yaml").write_text(json.dumps(rank_config))

    def roles(*overrides: str) -> set[str]:
        config = load_config([tmp_path / "c.yaml"], [*overrides])
        again = RefblendConfig.model_validate(config.resolved())
        assert again == config
        assert config.algorithm.ref_quality_score.scoring.model_path in (
            None,
            config.actor_rollout_ref.model.path,
        )
        return {role.name for role in roles_of(config)} - {"critic", "actor", "rollout"}

    assert roles(*REFERENCE) == {"ref", "judge"}
    assert roles(*LORA, *REFERENCE) == {"judge"}
    assert roles(*ADAPTER, *REFERENCE) == set()
