"""The head's values and gradients against autograd through all logits at once."""

import functools

import pytest
import torch
from torch import nn

from refblend.workers import chunked_head
from refblend.workers.chunked_head import chunked_log_probs

TOKENS, WIDTH, VOCABULARY = 11, 6, 23


def inputs(bias: bool, dtype=torch.float64):
    rng = torch.Generator().manual_seed(5)
    head = nn.Linear(WIDTH, VOCABULARY, bias=bias, dtype=dtype)
    for parameter in head.parameters():
        nn.init.normal_(parameter, generator=rng)
    hidden = torch.randn(TOKENS, WIDTH, generator=rng, dtype=dtype).requires_grad_()
    labels = torch.randint(VOCABULARY, (TOKENS,), generator=rng)
    return head, hidden, labels, torch.randn(2, TOKENS, generator=rng, dtype=dtype)


def whole(head, hidden, labels, temperature):
    """All logits at once, from the definitions."""
    log_p = (head(hidden) / temperature).log_softmax(-1)
    return log_p[torch.arange(len(labels)), labels], -(log_p.exp() * log_p).sum(-1)


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("wanted", ["log_probs", "entropy", "both"])
@pytest.mark.parametrize("size", [1, 4, 100])
@pytest.mark.parametrize("cached", [2, 100])
def test_values_and_gradients_are_those_of_all_logits_at_once(
    bias, wanted, size, cached, monkeypatch
):
    monkeypatch.setattr(chunked_head, "CACHED_LOGITS", cached * VOCABULARY)
    head, hidden, labels, weights = inputs(bias)
    found = []
    for compute in (
        lambda: whole(head, hidden, labels, 0.7),
        lambda: chunked_log_probs(head, hidden, labels, 0.7, size),
    ):
        values = compute()
        used = {"log_probs": values[:1], "entropy": values[1:], "both": values}[wanted]
        of_used = {"log_probs": weights[:1], "entropy": weights[1:], "both": weights}[wanted]
        loss = sum((v * w).sum() for v, w in zip(used, of_used, strict=True))
        found.append([*values, *torch.autograd.grad(loss, [hidden, *head.parameters()])])
    assert len(found[0]) == (5 if bias else 4)
    with torch.no_grad():
        found.append([*chunked_log_probs(head, hidden, labels, 0.7, size), *found[0][2:]])
    for ours in found[1:]:
        torch.testing.assert_close(ours, found[0], atol=1e-12, rtol=1e-10)


def test_a_compiled_softmax_gives_the_same(monkeypatch):
    """As on a GPU, but for the code that the compiler writes at the end."""
    head, hidden, labels, weights = inputs(True)
    found = []
    for devices in ((), ("cpu",)):
        monkeypatch.setattr(chunked_head, "COMPILED_ON", devices)
        traced = functools.cache(functools.partial(torch.compile, backend="aot_eager"))
        monkeypatch.setattr(chunked_head, "_compiled", traced)
        values = chunked_log_probs(head, hidden, labels, 0.7, 4)
        loss = sum((v * w).sum() for v, w in zip(values, weights, strict=True))
        found.append([*values, *torch.autograd.grad(loss, [hidden, *head.parameters()])])
        assert traced.cache_info().currsize == 2 * len(devices)
    torch.testing.assert_close(found[1], found[0], atol=1e-12, rtol=1e-10)


def test_autocast_computes_the_products_in_bfloat16_and_the_rest_in_float32():
    head, hidden, labels, weights = inputs(False, torch.float32)
    with torch.autocast("cpu", torch.bfloat16):
        log_probs, entropy = chunked_log_probs(head, hidden, labels, 1.0, 4)
    assert log_probs.dtype == entropy.dtype == torch.float32
    (log_probs * weights[0] + entropy * weights[1]).sum().backward()
    rounded = nn.Linear(WIDTH, VOCABULARY, bias=False)
    rounded.weight = nn.Parameter(head.weight.detach().bfloat16().float())
    exact, _ = whole(rounded, hidden.detach().bfloat16().float(), labels, 1.0)
    torch.testing.assert_close(log_probs, exact, atol=0.05, rtol=0)
    assert (log_probs != exact).any()  # the logits were rounded
    expected_head, expected_hidden, *_ = inputs(False, torch.float32)
    values = whole(expected_head, expected_hidden, labels, 1.0)
    (values[0] * weights[0] + values[1] * weights[1]).sum().backward()
    assert head.weight.grad.dtype == torch.float32
    torch.testing.assert_close(head.weight.grad, expected_head.weight.grad, atol=0.15, rtol=0.05)
    torch.testing.assert_close(hidden.grad, expected_hidden.grad, atol=0.15, rtol=0.05)


def test_a_forbidden_token_gives_no_nan():
    head, hidden, labels, weights = inputs(True)
    with torch.no_grad():
        head.bias[3] = -torch.inf
    log_probs, entropy = chunked_log_probs(head, hidden, labels.clamp(min=4), 1.0, 4)
    (log_probs * weights[0] + entropy * weights[1]).sum().backward()
    assert torch.isfinite(torch.cat([log_probs, entropy, hidden.grad.flatten()])).all()
    assert torch.isfinite(head.weight.grad).all()
