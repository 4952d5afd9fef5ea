"""The blend inside other people's trainers; nothing of refblend imports these modules.

``refblend.integrations.trl`` needs TRL 1.16, ``refblend.integrations.verl`` verl 0.9.1.
"""
