"""Experiment R: do the main contrasts hold with a real pretrained model?"""
