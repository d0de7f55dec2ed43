"""``python -m step0_wandb`` is ``step0-wandb``."""

from step0_wandb.cli import main

main()
