"""Advice before training: would a judge's score, blended into the reward, help on these rollouts?

``rollouts`` reads what trainers log, ``alignment`` is the maths, ``answer`` says what follows.
Needs neither Ray nor vLLM.
"""
