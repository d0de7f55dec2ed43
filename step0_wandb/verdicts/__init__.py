"""Checks and ranges to a verdict for every run, with its reasons."""
