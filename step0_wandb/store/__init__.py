"""What is known of every run, in one SQLite file."""

from step0_wandb.store.columns import COLUMNS, Wanted, columns_of, frame_of
from step0_wandb.store.people import Accept, Label
from step0_wandb.store.queries import SourceState
from step0_wandb.store.store import Store

__all__ = ["COLUMNS", "Accept", "Label", "SourceState", "Store", "Wanted", "columns_of", "frame_of"]
