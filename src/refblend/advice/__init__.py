"""Advice before training: would a judge's score, blended into the reward, help on these rollouts?

``rollouts`` reads trainers' logs, ``alignment`` has the maths, ``answer`` draws the conclusion.
Needs neither Ray nor vLLM.
"""
