"""Actor, critic and reference policy in one process: exact accumulation, exact resumption."""

import weakref

import pytest
import torch

from refblend.errors import ModelError
from refblend.files import OPTIMIZER_FILE
from refblend.workers.fsdp_workers import ActorWorker, CriticWorker, ReferenceWorker
from refblend.workers.networks import load_policy
from refblend.workers.types import MiniBatch, PolicyTargets, Sequences, merge_shards, response_mask

MODES = ["token-mean", "seq-mean-token-sum", "seq-mean-token-mean", "seq-mean-token-sum-norm"]
LORA = ("actor_rollout_ref.model.lora_rank=3", "actor_rollout_ref.model.lora_alpha=6")
WORKERS = pytest.mark.parametrize("kind", [ActorWorker, CriticWorker])


def state_of(worker) -> dict[str, torch.Tensor]:
    return {k: v.clone() for k, v in worker.network.state_dict().items()}


def largest_difference(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> float:
    assert a.keys() == b.keys()
    return max(float((a[k] - b[k]).abs().max()) for k in a)


def settings_of(worker, config):
    actor = isinstance(worker, ActorWorker)
    return config.actor_rollout_ref.actor if actor else config.critic


def targets_for(worker, targets):
    return targets[0 if isinstance(worker, ActorWorker) else 1]


def gradients(worker, mini, sequences, targets) -> dict[str, torch.Tensor]:
    """The accumulated gradient of one mini-batch, which is then dropped."""
    values = targets_for(worker, targets)
    worker.trainable._accumulate(
        mini.micro_batches, lambda rows: worker.loss(sequences, values, mini, rows)
    )
    found = {n: p.grad for n, p in worker.trainable.network.named_parameters()}
    worker.trainable.optimizer.zero_grad(set_to_none=True)
    return found


@WORKERS
@pytest.mark.parametrize("mode", MODES)
def test_micro_batches_equal_the_whole_batch(kind, mode, training_config, sequences, targets, plan):
    prefix = "actor_rollout_ref.actor" if kind is ActorWorker else "critic"
    config = training_config(f"{prefix}.loss_agg_mode={mode}")
    parts, whole = kind(config, 3), kind(config, 3)
    in_parts = plan(sequences, settings_of(parts, config))[0]
    at_once = [MiniBatch([list(range(7))], in_parts[0].num_tokens, in_parts[0].num_sequences)]
    assert len(in_parts[0].micro_batches) > 3
    start = state_of(parts)
    ours = gradients(parts, in_parts[0], sequences, targets)
    theirs = gradients(whole, at_once[0], sequences, targets)
    size = max(float(g.abs().max()) for g in theirs.values())
    assert size > 1e-3
    assert largest_difference(ours, theirs) < 1e-5 * size
    for step in (1, 2, 3):
        found = parts.update(sequences, targets_for(parts, targets), in_parts, step)
        expected = whole.update(sequences, targets_for(whole, targets), at_once, step)
        assert found == pytest.approx(expected, rel=1e-4, abs=1e-6)
    # AdamW divides by the gradient's size, so rounding in tiny gradients reaches the weights.
    assert largest_difference(state_of(parts), state_of(whole)) < 5e-6
    assert largest_difference(state_of(parts), start) > 1e-4


@pytest.mark.parametrize("lora", [False, True])
@WORKERS
@pytest.mark.parametrize("steps", [2, 0])
def test_continuing_from_a_save_equals_never_stopping(
    kind, steps, lora, training_config, sequences, targets, plan, tmp_path
):
    """Model and optimiser return bit by bit, so the next updates are identical.

    An actor may never have stepped: it waits while the critic warms up.
    """
    config = training_config(*(LORA if lora else ()))
    worker = kind(config, 9)
    minis = plan(sequences, settings_of(worker, config), mini_rows=4)[0]
    for step in range(1, steps + 1):
        worker.update(sequences, targets_for(worker, targets), minis, step)
    worker.save(str(tmp_path / "saved"))
    assert (tmp_path / "saved" / OPTIMIZER_FILE).exists() == (steps > 0)
    saved = state_of(worker)
    resumed = kind(config, 9)
    assert (largest_difference(state_of(resumed), saved) > 0) == (steps > 0)
    resumed.load(str(tmp_path / "saved"))
    assert largest_difference(state_of(resumed), saved) == 0
    for step in (3, 4):
        ours = resumed.update(sequences, targets_for(resumed, targets), minis, step)
        theirs = worker.update(sequences, targets_for(worker, targets), minis, step)
        assert ours == theirs
    assert largest_difference(state_of(resumed), state_of(worker)) == 0


def test_log_probs_come_back_in_the_order_of_the_batch(
    training_config, tiny_model_dir, sequences, plan
):
    config = training_config("actor_rollout_ref.rollout.temperature=0.7")
    worker = ActorWorker(config, 1)
    ranks = [p[0].micro_batches for p in plan(sequences, config.actor_rollout_ref.actor, ranks=4)]
    assert any([] in micro_batches for micro_batches in ranks)
    merged = merge_shards([worker.compute_log_prob(sequences, p) for p in ranks], 7)
    whole = merge_shards([worker.compute_log_prob(sequences, [list(range(7))])], 7)
    torch.testing.assert_close(merged, whole, atol=1e-5, rtol=0)
    mask = response_mask(sequences.response_lengths, sequences.response_width)
    assert torch.equal(merged[0] != 0, mask.bool())
    # One row against its own forward pass at the temperature.
    lm = load_policy(str(tiny_model_dir), 1.0).lm
    prompt, response = sequences.prompt_ids[1], sequences.response_ids[1]
    with torch.no_grad():
        logits = lm(torch.tensor([[*prompt, *response]])).logits[0, len(prompt) - 1 : -1]
    log_p = (logits / 0.7).log_softmax(-1)
    expected = log_p.gather(1, torch.tensor(response)[:, None])[:, 0]
    torch.testing.assert_close(merged[0][1], expected, atol=2e-5, rtol=0)


def test_a_rank_without_rows_answers_with_none(training_config, sequences):
    worker = ActorWorker(training_config(), 1)
    rows, (log_probs, entropy) = worker.compute_log_prob(sequences, [[], []])
    assert rows == []
    assert log_probs.shape == entropy.shape == (0, sequences.response_width)
    full = worker.compute_log_prob(sequences, [list(range(7))])
    merged, _ = merge_shards([full, (rows, (log_probs, entropy))], 7)
    assert torch.equal(merged, full[1][0])


def test_pooled_states_are_means_over_the_response(training_config, sequences):
    worker = ReferenceWorker(training_config(), 1)
    shard = worker.compute_pooled_states(sequences, [[2, 1], [0, 3, 4, 5, 6]])
    (states,) = merge_shards([shard], 7)
    for row in range(7):
        prompt, response = sequences.prompt_ids[row], sequences.response_ids[row]
        with torch.no_grad():
            hidden = worker.network.lm.model(torch.tensor([[*prompt, *response]])).last_hidden_state
        expected = hidden[0, len(prompt) :].mean(0) if response else torch.zeros(64)
        torch.testing.assert_close(states[row], expected, atol=2e-5, rtol=1e-5)


def test_a_colocated_reference_stays_where_the_actor_began(
    training_config, sequences, targets, plan, tmp_path
):
    """Through updates, a load and another run; the actor comes back after every pass."""
    worker = ActorWorker(training_config("actor_rollout_ref.ref.colocated=true"), 9)
    reference = ReferenceWorker(training_config(), 9)
    rows = [list(range(7))]

    def check() -> None:
        for method in ("compute_log_prob", "compute_pooled_states"):
            _, expected = getattr(reference, method)(sequences, rows)
            _, found = worker.as_reference(sequences, rows, method)
            assert all(map(torch.equal, found, expected))

    start = state_of(worker)
    worker.update(sequences, targets[0], plan(sequences, worker.config)[0], 1)
    check()
    assert largest_difference(state_of(worker), start) > 0
    worker.save(str(tmp_path))
    worker.load(str(tmp_path))
    check()
    worker.begin_run(2)
    check()
    assert largest_difference(state_of(worker), start) == 0


def test_a_batch_of_empty_responses_is_no_update(training_config):
    worker = ActorWorker(training_config(), 3)
    start = state_of(worker)
    sequences = Sequences([[5, 6], [7]], [[], []])
    zeros = torch.zeros(2, sequences.response_width)
    targets = PolicyTargets(zeros, zeros, zeros, zeros, zeros)
    metrics = worker.update(sequences, targets, [MiniBatch([[0, 1]], 0.0, 0)], 1)
    assert metrics["grad_norm"] == 0
    assert largest_difference(state_of(worker), start) == 0


def test_update_uses_every_mini_batch(training_config, sequences, targets, plan):
    config = training_config()
    worker = ActorWorker(config, 3)
    minis = plan(sequences, config.actor_rollout_ref.actor, mini_rows=3)[0]
    assert len(minis) == 3
    worker.update(sequences, targets[0], minis, 1)
    steps = {int(s["step"]) for s in worker.trainable.optimizer.state.values()}
    assert steps == {3}


@WORKERS
def test_another_run_is_loaded_when_the_last_one_has_been_freed(
    kind, training_config, sequences, targets, plan, monkeypatch
):
    config = training_config()
    worker = kind(config, 3)
    start = state_of(worker)
    mini = plan(sequences, settings_of(worker, config))[0]
    first = worker.update(sequences, targets_for(worker, targets), mini, 1)
    old = [weakref.ref(worker.network), weakref.ref(worker.trainable.optimizer)]
    load, alive = worker.load_network, []

    def watched(path: str):
        alive.extend(reference() is not None for reference in old)
        return load(path)

    monkeypatch.setattr(worker, "load_network", watched)
    worker.begin_run(0)
    assert alive == [False, False]
    assert largest_difference(start, state_of(worker)) == 0
    assert worker.update(sequences, targets_for(worker, targets), mini, 1) == first


def test_a_run_whose_model_is_missing_does_not_keep_the_next_from_starting(
    training_config, tmp_path, monkeypatch
):
    worker = ActorWorker(training_config(), 3)
    start = state_of(worker)
    with monkeypatch.context() as patch:
        patch.setattr(worker, "model_path", str(tmp_path / "gone"))
        with pytest.raises(ModelError):
            worker.begin_run(0)
    worker.begin_run(0)
    assert largest_difference(start, state_of(worker)) == 0
