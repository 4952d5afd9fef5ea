"""Workers: actor, critic, reference policy, rollout and judge.

They are plain classes that run in any process; :mod:`refblend.workers.groups` wraps them in Ray.
"""
