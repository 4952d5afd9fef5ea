"""refblend: does blending a reference model's quality score into PPO's rewards help a model reason?"""

__version__ = "0.1.0"
