"""The statistics: in which range the gap of a setup's next healthy run is expected.

Arrays in, ranges out; nothing here knows of W&B, of the store or of the command line. Data go down
this list, and imports up::

    table, judging, fitness    what callers use: DataFrames in and out
    noise                      how large ppo_kl may be where it cannot be 0
    model                      all that was learned, whatever the alpha
    levels, epochs             where a setup moved to another level
    screen                     members, priors and tails, found in turns
    taught                     what one fit leaves for the next
    tails, prior               what setups teach each other about tails and spread
    spread                     limits and probabilities
    history, cells             checked input; runs in cells
"""

from step0_wandb.ranges.fitness import goodness_of_fit
from step0_wandb.ranges.judging import judged_by
from step0_wandb.ranges.table import fit_ranges

__all__ = ["fit_ranges", "goodness_of_fit", "judged_by"]
