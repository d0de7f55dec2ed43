"""The command line: it parses and prints, nothing else."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

INTERRUPTED = 130


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the program and leave with its exit code; an interrupt while it still loads says nothing."""
    try:
        from step0_wandb.cli import app

        app.main(arguments)
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
