"""The result of a reward function for one response."""

from dataclasses import dataclass


@dataclass(frozen=True)
class RewardResult:
    """The verdict on one response."""

    score: float
    """The training reward R of the sequence, placed on the last response token."""
    acc_strict: float
    """1 if the answer in the required form is right."""
    acc_flexible: float
    """1 if the answer is right in any form."""
    error: str = ""
    """Why the response could not be judged: it scores 0, and is counted."""

    def accuracy(self, method: str) -> float:
        """1 if the answer is right by ``reward.method``."""
        return self.acc_strict if method == "strict" else self.acc_flexible
