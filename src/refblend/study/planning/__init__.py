"""What a study will cost: costs of runs, schedules, plans."""
