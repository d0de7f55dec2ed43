"""Runs from a W&B server."""
