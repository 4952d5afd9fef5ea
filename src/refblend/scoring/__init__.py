"""The judge: prompts, length guards, parsing, calibration and its defence against hacking.

``judge`` is the interface and starts the kind that the configuration names: ``generative`` (a
language model on one of our engines), ``endpoint`` (one behind HTTP), ``reward_model``, or a class
of the user's.

The path of one sample: ``quote`` makes hostile text harmless, ``templates`` and ``prompts`` build
the prompt, ``clipping`` keeps it within the model's length, ``parsing`` reads the
judge's own tokens. ``measure`` holds what measures judges; training does not use it.
"""
