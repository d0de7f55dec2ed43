"""Finds broken RL post-training runs at their first optimizer step, from what they log to W&B.

What a notebook uses::

    import step0_wandb as s0

    runs = s0.load_runs("team/project")  # or "./wandb", or a store: s0.load_runs(store="step0.db")
    ranges = s0.fit_ranges(runs)  # one row a setup
    verdicts = s0.judge(runs, ranges)  # one row a run
    s0.plot_gaps(verdicts, ranges)  # matplotlib Axes
    s0.explain(verdicts, "run_id")  # the same answer as the command
    result = s0.sync(["team/project"], store="step0.db")
    s0.lint("run-qwen3-4B.sh")  # before the launch

Each name loads what it needs when it is first used, so that importing the package is cheap.
"""

from importlib import import_module
from typing import TYPE_CHECKING

__version__ = "0.2.0"

if TYPE_CHECKING:
    from step0_wandb.app.diff import diff
    from step0_wandb.app.lint import lint
    from step0_wandb.app.notebook import explain, load_runs
    from step0_wandb.app.sync import sync
    from step0_wandb.plots import plot_fit, plot_gaps, plot_history
    from step0_wandb.ranges import fit_ranges, goodness_of_fit
    from step0_wandb.verdicts.judge import judge

_HOMES = {
    "diff": "app.diff",
    "explain": "app.notebook",
    "fit_ranges": "ranges",
    "goodness_of_fit": "ranges",
    "judge": "verdicts.judge",
    "lint": "app.lint",
    "load_runs": "app.notebook",
    "plot_fit": "plots",
    "plot_gaps": "plots",
    "plot_history": "plots",
    "sync": "app.sync",
}

__all__ = [
    "__version__",
    "diff",
    "explain",
    "fit_ranges",
    "goodness_of_fit",
    "judge",
    "lint",
    "load_runs",
    "plot_fit",
    "plot_gaps",
    "plot_history",
    "sync",
]


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'step0_wandb' has no attribute {name!r}")
    return getattr(import_module(f"step0_wandb.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
