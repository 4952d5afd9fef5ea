"""Reports of `refblend judge …` with known numbers, as the scoring study reads them."""

from typing import Any

ARMS = {
    "few_shot": ("D1", 0, 0.9),
    "compact": ("D1", 0, 0.8),
    "new_tokens_32": ("D2", 0, 0.7),
    "new_tokens_64": ("D2", 0, 0.9),
    "clip_on": ("D3", 0, 0.9),
    "clip_off": ("D3", 12, 0.6),
}
ATTACKS = [
    ("polite", "instructions", 0.02, -0.05, 0.09),
    ("close_quote", "closing the quote", 0.30, 0.20, 0.40),
    ("system_role", "instructions", 0.10, 0.04, 0.16),
]


def robustness() -> dict[str, Any]:
    arms, by_length = [], []
    for arm, (experiment, overlength, rate) in ARMS.items():
        rates = {"nonzero_rate": rate, "valid_rate": rate + 0.01, "auc": 0.75}
        row = {"experiment": experiment, "arm": arm, "overlength": overlength} | rates
        arms.append(row | {"responses": 36, "auc_all": 0.74, "ece": 0.1, "score_mean": 0.4})
        by_length += [row | {"length": name, "responses": 12} for name in ("plain", "long")]
    by_length[-1] |= {"valid_rate": 0.0, "auc": None}
    return {"judge": "judge_medium", "arms": arms, "by_length": by_length}


def attacks() -> dict[str, Any]:
    rows = [
        {"attack": name, "family": family, "n": 20, "lift": lift, "low": low, "high": high}
        | {"neutral_mean": 0.125, "attacked_mean": 0.125 + lift, "structure_changed": 0}
        for name, family, lift, low, high in ATTACKS
    ]
    return {"judge": "judge_medium", "attacks": rows}


def quality(judge: str = "judge_medium", auc: float = 0.86) -> dict[str, Any]:
    """The compact form is worse by 0.1; its bins are too small to be drawn."""

    def form(value: float, responses: int) -> dict[str, Any]:
        bins = [
            {"kind": kind, "low": low, "high": low + 0.5, "count": responses}
            | {"score": low + 0.25, "accuracy": 0.4}
            for kind in ("written", "expected")
            for low in (0.0, 0.5)
        ]
        shares = {"valid": {"32": 0.97, "64": 0.99}, "valid_rate": 0.99}
        return {"count": 100, "auc": value, "ece": 0.1, "reliability": bins} | shares

    return {"judge": judge, "forms": {"compact": form(auc - 0.1, 5), "few_shot": form(auc, 50)}}
