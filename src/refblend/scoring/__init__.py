"""The judge: prompts, length guards, parsing, calibration and its defence against hacking.

The way of one sample: ``quote`` makes hostile text harmless, ``templates`` and ``prompts`` build
the prompt, ``clipping`` and ``score`` keep it within the model's length, ``parsing`` reads the
judge's own tokens, ``judge`` drives it all over one engine call.
"""
