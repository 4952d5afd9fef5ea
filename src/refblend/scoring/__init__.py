"""The judge: prompts, length guards, parsing, calibration and its defence against hacking.

``judge`` is the interface, ``kinds`` starts the one that the configuration names: ``generative``
(a language model on one of our engines), ``endpoint`` (one behind HTTP) or ``reward_model``.

The way of one sample: ``quote`` makes hostile text harmless, ``templates`` and ``prompts`` build
the prompt, ``clipping`` and ``request`` keep it within the model's length, ``parsing`` reads the
judge's own tokens. ``measure`` holds what measures judges; training does not use it.
"""
