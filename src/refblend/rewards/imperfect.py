"""An imperfect verifier, the rule reward made sparse or noisy on purpose; and a perfect judge.

If blending helps anywhere, it helps with the partial credit of the gold solution, the oracle that
serves as a positive control: a study in which it does not help cannot conclude anything from a
judge that does not.

Reward models help where the verifier is sparse, noisy or strict (arXiv 2510.07242) and hurt beside
exact rewards (arXiv 2410.15115). These two faults let a study ask which regime it is in.
Accuracies are never touched.
"""

from collections.abc import Sequence

from refblend.config.root import VerifierConfig
from refblend.data.equations import EQUATION
from refblend.errors import ConfigError
from refblend.seeding import derive_generator


def imperfect_rewards(
    config: VerifierConfig,
    rewards: Sequence[float],
    places: Sequence[tuple[int, int]],
    step: int,
    seed: int,
) -> list[float]:
    """The rewards that a verifier with these faults gives, for B rewards of a faultless one.

    A problem that it cannot check is the same in every step: all responses to it get 0. Flips are
    drawn for each response, by its (prompt's index, sample's index) in ``places`` and the step: R
    becomes 1 − R, or ConfigError outside [0, 1].
    """
    if config.checked_share == 1.0 and config.flip_rate == 0.0:
        return list(rewards)
    faulty = []
    for reward, (prompt, sample) in zip(rewards, places, strict=True):
        checked = derive_generator(seed, "checked problems", prompt).random() < config.checked_share
        value = reward if checked else 0.0
        draw = derive_generator(seed, "flipped rewards", step, prompt, sample).random()
        if draw < config.flip_rate:
            if not 0.0 <= value <= 1.0:
                raise ConfigError(
                    f"reward.verifier.flip_rate needs rewards in [0, 1]; one is {value}",
                    "Set reward.verifier.flip_rate=0, or scale the rewards.",
                )
            value = 1.0 - value
        faulty.append(value)
    return faulty


def partial_credit(response: str, solution: str, correct: float) -> float:
    """Half for the right answer, half for the share of the solution's equations that it shows.

    In [0, 1]. Equations as in ``13-10=3`` count once each; a solution without any leaves the
    correctness (1 or 0) alone.
    """
    steps = set(EQUATION.findall(solution))
    if not steps:
        return float(correct)
    return 0.5 * correct + 0.5 * len(steps & set(EQUATION.findall(response))) / len(steps)
