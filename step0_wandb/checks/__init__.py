"""The checks that a run passes or fails: arrays in, outcomes out."""
