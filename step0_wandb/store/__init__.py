"""What is known of every run, in one SQLite file."""

from pathlib import Path

from step0_wandb.store.columns import COLUMNS, Wanted, columns_of, frame_of
from step0_wandb.store.file import store_exists
from step0_wandb.store.fits import KeptFit
from step0_wandb.store.outbox import Message, Queued, Subject
from step0_wandb.store.people import Accept, Label, Mute, Retraction
from step0_wandb.store.runs import RunPresence, RunSelection
from step0_wandb.store.sources import SourceState
from step0_wandb.store.store import Store

NOWHERE = Path("step0-nowhere.db")
"""No such file: a store opened as a copy of it is an empty one in memory."""

__all__ = [
    "COLUMNS",
    "NOWHERE",
    "Accept",
    "KeptFit",
    "Label",
    "Message",
    "Mute",
    "Queued",
    "Retraction",
    "RunPresence",
    "RunSelection",
    "SourceState",
    "Store",
    "Subject",
    "Wanted",
    "columns_of",
    "frame_of",
    "store_exists",
]
