"""Charts for notebooks and print: every function takes ``ax=None`` and returns matplotlib Axes.

Verdicts differ by shape as well as by color, so that the charts read without color, too.
"""

from step0_wandb.plots.fit import plot_fit
from step0_wandb.plots.gaps import plot_gaps
from step0_wandb.plots.history import plot_history

__all__ = ["plot_fit", "plot_gaps", "plot_history"]
