"""The networks against a forward pass of each sequence alone, without padding."""

import json
import shutil

import pytest
import torch
from transformers import AutoModelForCausalLM, Gemma2Config, GraniteConfig

from refblend.errors import ModelError
from refblend.workers import chunked_head, networks
from refblend.workers.distributed import full_state, save_model
from refblend.workers.layout import pad_batch, scatter_tokens
from refblend.workers.networks import load_policy, load_value

CPU = torch.device("cpu")
ROWS = range(7)


@torch.no_grad()
def oracle(model, prompt, response, temperature) -> tuple[list[float], list[float]]:
    """Log-probs and entropies of one response, position by position, in float64."""
    logits = model(torch.tensor([[*prompt, *response]])).logits[0].double() / temperature
    log_probs, entropies = [], []
    for t, token in enumerate(response):
        log_p = logits[len(prompt) - 1 + t].log_softmax(-1)
        log_probs.append(float(log_p[token]))
        entropies.append(float(-(log_p.exp() * log_p).sum()))
    return log_probs, entropies


def test_a_checkpoint_has_what_loading_let_pass_and_the_code_that_it_names(
    tiny_model_dir, tmp_path
):
    """Sampling settings without sampling, and code in the model's directory."""
    source, saved = tmp_path / "model", tmp_path / "saved"
    shutil.copytree(tiny_model_dir, source)
    generation = {"do_sample": False, "temperature": 0.6, "eos_token_id": [1, 2]}
    (source / "generation_config.json").write_text(json.dumps(generation))
    config = json.loads((source / "config.json").read_text())
    config["auto_map"] = {"AutoModelForCausalLM": "modeling_mine.Mine"}
    (source / "config.json").write_text(json.dumps(config))
    (source / "modeling_mine.py").write_text(
        "from transformers import Qwen2ForCausalLM\n\nclass Mine(Qwen2ForCausalLM): ...\n"
    )
    network = load_policy(str(source), 1.0, trust_remote_code=True)
    save_model(network, full_state(network), saved, remote_code=source)
    kept = json.loads((saved / "generation_config.json").read_text())
    assert kept["temperature"] == 0.6
    assert kept["eos_token_id"] == [1, 2]
    again = load_policy(str(saved), 1.0, trust_remote_code=True)
    assert type(again.lm).__name__ == type(network.lm).__name__ == "Mine"
    for name, tensor in network.lm.state_dict().items():
        assert torch.equal(tensor, again.lm.state_dict()[name])


@pytest.mark.parametrize(
    ("config", "changes"),
    [
        (GraniteConfig, {"logits_scaling": 8.0}),
        (Gemma2Config, {"final_logit_softcapping": 1.0, "attn_logit_softcapping": None}),
        (Gemma2Config, {"final_logit_softcapping": None, "attn_logit_softcapping": 1.0}),
    ],
)
def test_a_model_that_changes_its_logits_is_refused(config, changes, tmp_path):
    """The head alone would give other log-probs than the engine's."""
    sizes = {"vocab_size": 64, "hidden_size": 32, "intermediate_size": 32, "head_dim": 16}
    sizes |= {"num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 1}
    torch.manual_seed(0)
    lm = AutoModelForCausalLM.from_config(config(**sizes, initializer_range=0.5, **changes))
    lm.save_pretrained(tmp_path)
    for shared_prefix in (True, False):
        with pytest.raises(ModelError, match="scales or caps its logits"):
            load_policy(str(tmp_path), 1.0, shared_prefix=shared_prefix)


@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_policy_equals_the_unpadded_oracle(tiny_model_dir, sequences, temperature):
    model = AutoModelForCausalLM.from_pretrained(tiny_model_dir, dtype=torch.float32)
    policy = load_policy(str(tiny_model_dir), temperature)
    batch = pad_batch(sequences, ROWS, CPU)
    with torch.no_grad():
        log_probs, entropy = policy(batch)
    shape = (7, sequences.response_width)
    log_probs = scatter_tokens(log_probs, batch, *shape)
    entropy = scatter_tokens(entropy, batch, *shape)
    for row in ROWS:
        prompt, response = sequences.prompt_ids[row], sequences.response_ids[row]
        expected = oracle(model, prompt, response, temperature)
        for ours, theirs in zip((log_probs, entropy), expected, strict=True):
            found = ours[row, : len(response)].tolist()
            assert found == pytest.approx(theirs, abs=2e-5)
            assert not ours[row, len(response) :].any()


def test_the_head_works_in_chunks(tiny_model_dir, sequences, monkeypatch):
    policy = load_policy(str(tiny_model_dir), 0.8)
    batch = pad_batch(sequences, ROWS, CPU)
    whole = torch.stack(policy(batch))
    sizes: list[int] = []
    linear = chunked_head.linear

    def counting(hidden, weight, bias):
        sizes.append(len(hidden))
        return linear(hidden, weight, bias)

    monkeypatch.setattr(chunked_head, "linear", counting)
    monkeypatch.setitem(networks.MAX_CHUNK_LOGITS, "cpu", policy.lm.config.vocab_size * 6)
    in_chunks = torch.stack(policy(batch))
    in_chunks.sum().backward()
    # 39 tokens in chunks of 6, each computed again in the backward pass.
    assert sorted(sizes) == sorted([6] * 12 + [3] * 2)
    torch.testing.assert_close(in_chunks, whole, atol=1e-5, rtol=1e-6)
    # Off the CPU few tokens go the same way, on which the formula of GPU memory counts.
    monkeypatch.setitem(networks.MAX_CHUNK_LOGITS, "meta", 2**29)
    monkeypatch.setattr(networks, "chunked_log_probs", lambda head, hidden, *_: (hidden, hidden))
    few = torch.empty(1, policy.lm.config.hidden_size, device="meta")
    assert policy._log_probs(few, few)[0] is few


@pytest.mark.parametrize("kind", ["policy", "value"])
def test_gradient_checkpointing_recomputes_blocks_and_changes_nothing(
    tiny_model_dir, sequences, kind
):
    """Workers keep their network in eval mode; checkpointing must be active there too."""

    def run(checkpointing: bool) -> tuple[int, list[torch.Tensor]]:
        path = str(tiny_model_dir)
        if kind == "policy":
            network = load_policy(path, 1.0, checkpointing=checkpointing)
        else:
            network = load_value(path, checkpointing=checkpointing)
            torch.nn.init.ones_(network.lm.score.weight)
        calls: list[int] = []
        network.lm.model.layers[0].mlp.register_forward_pre_hook(lambda *_: calls.append(1))
        output = network(pad_batch(sequences, ROWS, CPU))
        (output[0] if kind == "policy" else output).sum().backward()
        assert not any(m.training for m in network.modules() if isinstance(m, torch.nn.Dropout))
        grads = [p.grad for p in network.parameters() if p.grad is not None]
        return len(calls), grads

    (plain_calls, plain), (calls, grads) = run(False), run(True)
    assert (plain_calls, calls) == (1, 2)
    for ours, theirs in zip(grads, plain, strict=True):
        torch.testing.assert_close(ours, theirs)


def test_value_network_starts_at_zero_and_learns(tiny_model_dir, sequences):
    network = load_value(str(tiny_model_dir))
    batch = pad_batch(sequences, ROWS, CPU)
    values = network(batch)
    assert values.shape == (sum(sequences.response_lengths),)
    assert not values.any()
    ((values - 1) ** 2).sum().backward()
    assert network.lm.score.weight.grad.any()


def test_value_network_equals_the_unpadded_oracle(tiny_model_dir, sequences):
    network = load_value(str(tiny_model_dir))
    with torch.no_grad():
        torch.manual_seed(0)
        network.lm.score.weight.normal_()
        network.lm.score.bias.fill_(0.5)
        batch = pad_batch(sequences, ROWS, CPU)
        values = scatter_tokens(network(batch), batch, 7, sequences.response_width)
        for row in ROWS:
            prompt, response = sequences.prompt_ids[row], sequences.response_ids[row]
            every = network.lm(torch.tensor([[*prompt, *response]])).logits[0, :, 0]
            expected = every[len(prompt) - 1 : len(prompt) - 1 + len(response)]
            torch.testing.assert_close(values[row, : len(response)], expected, atol=2e-5, rtol=1e-5)


@pytest.mark.parametrize("load", [lambda path, **o: load_policy(path, 1.0, **o), load_value])
def test_an_empty_network_has_the_shapes_and_reads_no_weights(load, tiny_model_dir, tmp_path):
    """What ranks other than 0 build, before rank 0 sends them its weights."""
    whole = load(str(tiny_model_dir))
    source = tmp_path / "model"
    shutil.copytree(tiny_model_dir, source)
    (source / "model.safetensors").write_bytes(b"")
    empty = load(str(source), empty=True)
    assert all(p.is_meta for p in empty.parameters())
    shapes = {name: p.shape for name, p in whole.named_parameters()}
    assert {name: p.shape for name, p in empty.named_parameters()} == shapes


def test_the_end_token_keeps_its_input_gradient_where_it_also_pads(make_tiny_model):
    """torch drops it for an embedding's ``padding_idx``; the oracle embeds the tokens itself."""
    path = make_tiny_model(0, tie_word_embeddings=False)
    config = json.loads((path / "config.json").read_text())
    config["pad_token_id"] = end = config["eos_token_id"]
    (path / "config.json").write_text(json.dumps(config))
    lm = load_policy(str(path), 1.0).lm
    ids = torch.tensor([[5, end, 7, 3, end, 8]])
    table = lm.get_input_embeddings().weight

    embedded = table.detach()[ids].requires_grad_()
    lm(inputs_embeds=embedded).logits.square().sum().backward()
    right = embedded.grad[ids == end].sum(0)
    lm(input_ids=ids).logits.square().sum().backward()
    assert right.norm() > 0
    torch.testing.assert_close(table.grad[end], right)
