"""Runs from the directories that the wandb client writes."""
