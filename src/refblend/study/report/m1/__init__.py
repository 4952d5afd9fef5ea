"""Milestone M1: is linear blending as stable as training without it?"""
