"""Reports of `refblend judge …` with known numbers, as the scoring study reads them."""

from typing import Any

ARMS = {
    "few_shot": ("D1", 0, 0.9),
    "compact": ("D1", 0, 0.8),
    "new_tokens_32": ("D2", 0, 0.7),
    "new_tokens_64": ("D2", 0, 0.9),
    "new_tokens_96": ("D2", 0, 0.95),
    "clip_on": ("D3", 0, 0.9),
    "clip_off": ("D3", 12, 0.6),
}
LENGTHS = ("plain", "long", "very_long")


def about(judge: str, responses: int) -> dict[str, Any]:
    """What every report says of itself."""
    return {
        "judge": judge,
        "engine": "vllm",
        "max_new_tokens": 64,
        "corpus": {
            "file": "test.parquet",
            "responses": responses,
            "right": responses // 2,
            "length": dict.fromkeys(LENGTHS, responses // 3),
            "difficulty": {"1": responses // 2, "2": responses // 2},
        },
    }


def circumstances() -> dict[str, Any]:
    """Where the measurements were made, and how long they took."""
    return {
        "git": {"commit": "0123456789abcdef", "dirty": False},
        "hardware": {"cpu": "Test CPU"},
        "seconds_per_response": dict.fromkeys(ARMS, 0.01),
    }


def robustness() -> dict[str, Any]:
    arms, by_length = [], []
    for arm, (experiment, overlength, rate) in ARMS.items():
        rates = {"nonzero_rate": rate, "valid_rate": rate + 0.01, "auc": 0.75}
        shares = {"compact_rate": 0.3, "clipped_rate": 0.3}
        row = {"experiment": experiment, "arm": arm, "overlength": overlength} | rates | shares
        arms.append(
            row
            | {"responses": 36, "fallback_rate": 0.02, "auc_all": 0.74, "ece": 0.1}
            | {"tokens_per_response": 300.0, "new_tokens_per_response": 24.0}
            | {"token_path_rate": 0.0, "judge_error": 0}
            | {"score_mean": 0.4, "score_std": 0.3}
        )
        by_length += [row | {"length": length, "responses": 12} for length in LENGTHS]
    by_length[-1] |= {"valid_rate": 0.0, "auc": None}
    return about("judge_medium", 36) | {
        "score_mode": "expected", "arms": arms, "by_length": by_length,
    }  # fmt: skip


def attacks(structure_changed: int = 0) -> dict[str, Any]:
    rows = [
        ("polite", "instructions", 0.02, -0.05, 0.09),
        ("close_quote", "closing the quote", 0.30, 0.20, 0.40),
        ("system_role", "instructions", 0.10, 0.04, 0.16),
    ]
    return about("judge_medium", 20) | {
        "score_mode": "expected",
        "attacks": [
            {
                "attack": name,
                "family": family,
                "n": 20,
                "neutral_mean": 0.125,
                "attacked_mean": 0.125 + lift,
                "lift": lift,
                "low": low,
                "high": high,
                "valid_rate": 0.9,
                "overlength": 0,
                "clipped_rate": 0.0,
                "structure_changed": structure_changed if name == "close_quote" else 0,
            }
            for name, family, lift, low, high in rows
        ],
    }


def quality(judge: str = "judge_medium", auc: float = 0.86) -> dict[str, Any]:
    """The compact form is worse by 0.1; one bin of it is too small to be drawn."""

    def form(few_shot: bool, value: float) -> dict[str, Any]:
        figures = {
            "count": 100, "share": 0.5, "right": 0.4, "auc": value, "auc_expected": value + 0.01,
            "ece": 0.1, "ece_expected": 0.09, "valid_rate": 0.99, "nonzero_rate": 0.98,
            "score_mean": 0.4, "score_std": 0.3, "length_correlation": 0.1, "new_tokens": 24.0,
        }  # fmt: skip
        kinds = ("written", "expected")
        edges = ((0.0, 0.5), (0.5, 1.0))
        return figures | {
            "few_shot": few_shot,
            "worked": 0.8,
            "auc_worked": value + 0.02,
            "auc_expected_worked": None,
            "mean_absolute_error": 0.1,
            "distinct_scores": 6,
            "valid": {"32": 0.97, "64": 0.99},
            "by_length": [{"length_bin": f"{n} characters"} | figures for n in ("6–30", "30–90")],
            "by_difficulty": [{"difficulty": n} | figures for n in (1, 2)],
            "reliability": [
                {"kind": kind, "low": low, "high": high, "count": 50 if few_shot else 5}
                | {"score": (low + high) / 2, "accuracy": 0.4}
                for kind in kinds
                for low, high in edges
            ],
            "histogram": [
                {"kind": kind, "low": low, "high": high, "label": label, "count": 20}
                for kind in kinds
                for label in (0, 1)
                for low, high in edges
            ],
            "misjudged": [
                {
                    "question": f"What does {judge} see?",
                    "response": "1+1=3\n#### 3",
                    "raw": f"\\box{{{value:.2f}}}",
                    "expected": value,
                }
            ],
        }

    forms = {"compact": form(False, auc - 0.1), "few_shot": form(True, auc)}
    return about(judge, 100) | {"forms": forms}
