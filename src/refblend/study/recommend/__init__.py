"""The recommended configuration: candidates, the rule that chooses, guards."""
