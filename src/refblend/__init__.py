"""refblend: PPO with a reference model's quality score blended into the rewards."""

__version__ = "0.1.0"
