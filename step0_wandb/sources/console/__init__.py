"""Runs from what a trainer printed."""
