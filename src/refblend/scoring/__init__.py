"""The judge: prompts, length guards, parsing, and its defence against hacking.

The path of one sample: ``quote`` makes hostile text harmless, ``templates`` and ``prompts`` build
the prompt, ``clipping`` keeps it within the model's length, ``parsing`` reads the judge's tokens.
``measure`` holds what measures judges; training does not use it.
"""
