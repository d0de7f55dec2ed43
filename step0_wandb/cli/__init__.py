"""The command line: it parses and prints, nothing else."""

from step0_wandb.cli.app import main

__all__ = ["main"]
