"""Sharing the tokens of sequences that begin alike changes neither values nor gradients.

The plain layout, itself tested against single sequences in ``test_networks.py``, is the oracle.
"""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from refblend.errors import ModelError
from refblend.workers import layout
from refblend.workers.fsdp_workers import ActorWorker
from refblend.workers.layout import SHARED_ATTENTION, PrefixTree, pad_batch
from refblend.workers.networks import PolicyNetwork, load_policy, load_value
from refblend.workers.types import Sequences, merge_shards

CPU = torch.device("cpu")


def make_sequences(
    groups: list[tuple[int, list[int]]], seed: int = 0, words: int = 397
) -> Sequences:
    """Groups of (prompt tokens, tokens of each response), rows of a group side by side.

    With few words responses begin alike, are the same, or are another prompt.
    """
    rng = torch.Generator().manual_seed(seed)

    def draw(count: int) -> list[int]:
        return torch.randint(3, 3 + words, (count,), generator=rng).tolist()

    prompts, responses = [], []
    for size, answers in groups:
        prompt = draw(size)
        prompts += [prompt] * len(answers)
        responses += [draw(answer) for answer in answers]
    return Sequences(prompts, responses)


GROUPS = st.lists(
    st.tuples(st.integers(1, 12), st.lists(st.integers(0, 9), min_size=1, max_size=4)),
    min_size=1,
    max_size=4,
).filter(lambda groups: any(any(answers) for _, answers in groups))


@st.composite
def cases(draw) -> tuple[Sequences, list[int]]:
    """A batch, and some of its rows in any order: groups of unequal sizes, torn apart."""
    words = draw(st.sampled_from([1, 2, 3, 397]))
    sequences = make_sequences(draw(GROUPS), draw(st.integers(0, 99)), words)
    order = draw(st.permutations(range(len(sequences))))
    rows = order[: draw(st.integers(1, len(order)))]
    if not any(sequences.response_lengths[r] for r in rows):
        rows = order
    return sequences, list(rows)


def outputs_and_gradients(network, batch, dtype=torch.float32):
    """Every output of the network, and the gradient of a random combination of them."""
    with torch.autocast("cpu", torch.bfloat16, enabled=dtype == torch.bfloat16):
        if isinstance(network, PolicyNetwork):
            outputs = [*network(batch), network(batch, pooled=True)[0]]
        else:
            outputs = [network(batch)]
    rng = torch.Generator().manual_seed(3)
    loss = (
        sum((o * torch.rand(o.shape, generator=rng)).sum() for o in outputs) / batch.labels.numel()
    )
    network.zero_grad()
    loss.backward()
    grads = {n: p.grad.clone() for n, p in network.named_parameters() if p.grad is not None}
    return [o.detach() for o in outputs], grads


def load(kind: str, path, shared: bool):
    if kind == "policy":
        return load_policy(str(path), 0.9, shared_prefix=shared)
    network = load_value(str(path), shared_prefix=shared)
    with torch.no_grad():
        network.lm.score.weight.normal_(generator=torch.Generator().manual_seed(1))
    return network


@pytest.fixture(scope="module", params=["policy", "value"])
def pair(request, make_tiny_model):
    """A network in the shared and in the plain layout; outputs of a moderate size."""
    path = make_tiny_model(0, initializer_range=0.05)
    return load(request.param, path, True), load(request.param, path, False)


@given(case=cases())
@settings(max_examples=40, deadline=None)
def test_values_and_gradients_equal_those_of_the_plain_layout(pair, case):
    sequences, rows = case
    batch = pad_batch(sequences, rows, CPU)
    ours, theirs = (outputs_and_gradients(network, batch) for network in pair)
    torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=1e-5)


GROUP_SIZES = [(12, [7, 0, 3, 9]), (5, [4]), (9, [1, 1, 6])]


def test_bfloat16_differs_from_float32_as_little_as_the_plain_layout_does(pair):
    batch = pad_batch(make_sequences(GROUP_SIZES), range(8), CPU)
    shared, plain = pair
    exact, _ = outputs_and_gradients(plain, batch)
    errors = []
    for network in (plain, shared):
        outputs, grads = outputs_and_gradients(network, batch, torch.bfloat16)
        assert all(g.isfinite().all() for g in grads.values())
        errors.append(max(float((a - b).abs().max()) for a, b in zip(outputs, exact, strict=True)))
    assert 0 < errors[1] < 2 * errors[0]


def test_attention_is_in_float32_whatever_the_precision_of_the_products(pair, monkeypatch):
    shared, _ = pair
    attend, seen = layout.sdpa_attention_forward, []

    def watched(module, *rows, **options):
        seen.append((torch.is_autocast_enabled("cpu"), *(r.dtype for r in rows if r is not None)))
        return attend(module, *rows, **options)

    monkeypatch.setattr(layout, "sdpa_attention_forward", watched)
    batch = pad_batch(make_sequences(GROUP_SIZES), range(8), CPU)
    outputs_and_gradients(shared, batch, torch.bfloat16)
    assert set(seen) == {(False, torch.float32, torch.float32, torch.float32)}


@given(case=cases())
@settings(max_examples=200, deadline=None)
def test_the_tree_holds_each_beginning_once(case):
    sequences, rows = case
    batch = pad_batch(sequences, rows, CPU)
    tree = PrefixTree(batch)
    whole = [tuple(sequences.prompt_ids[r] + sequences.response_ids[r]) for r in rows]
    found: dict[int, tuple[int, ...]] = {}
    for row, tokens in enumerate(whole):
        for column in range(len(tokens)):
            node = int(tree.source[row, column])
            assert found.setdefault(node, tokens[: column + 1]) == tokens[: column + 1]
    beginnings = {t[: i + 1] for t in whole for i in range(len(t))}
    assert len(found) == len(beginnings) == len(tree.keep)
    # Attention sees every different sequence once.
    assert tree.shape[0] == len(set(whole))
    inputs = tree.model_inputs()
    for node, tokens in found.items():
        assert inputs["input_ids"][0, node] == tokens[-1]
        assert inputs["position_ids"][0, node] == len(tokens) - 1


def test_models_that_see_less_than_the_whole_sequence_are_refused(pair):
    module = pair[0].lm.model.layers[0].self_attn
    heads = torch.zeros(1, 2, 5, 32)
    with pytest.raises(ModelError, match="use_shared_prefix=false"):
        layout.shared_attention(module, heads, heads, heads, None, sliding_window=4)
    with pytest.raises(ModelError, match="use_shared_prefix=false"):
        layout.shared_attention(module, heads, heads, heads, torch.ones(1, 1, 5, 5))


def test_layers_without_transformers_attention_are_refused(make_tiny_model, monkeypatch):
    policy = load("policy", make_tiny_model(0), True)
    attention = policy.lm.model.layers[1].self_attn
    monkeypatch.setattr(attention, "forward", lambda hidden_states, **_: (hidden_states, None))
    with pytest.raises(ModelError, match="each of its 2 layers"):
        policy(pad_batch(make_sequences(GROUP_SIZES), range(3), CPU))


def test_saved_models_do_not_name_the_layout(make_tiny_model, tmp_path):
    policy = load("policy", make_tiny_model(0), True)
    assert policy.lm.config._attn_implementation == SHARED_ATTENTION
    policy.lm.save_pretrained(tmp_path)
    policy.lm.config.save_pretrained(tmp_path)
    assert SHARED_ATTENTION not in (tmp_path / "config.json").read_text()


def test_the_switch_of_the_configuration(training_config):
    sequences = make_sequences(GROUP_SIZES)
    found = []
    for value, attention in (("true", SHARED_ATTENTION), ("false", "sdpa")):
        config = training_config(f"actor_rollout_ref.model.use_shared_prefix={value}")
        worker = ActorWorker(config, total_steps=1)
        assert worker.network.lm.config._attn_implementation == attention
        found.append(merge_shards([worker.compute_log_prob(sequences, [[*range(8)]])], 8))
    for ours, theirs in zip(*found, strict=True):
        torch.testing.assert_close(ours, theirs, atol=1e-4, rtol=1e-4)
