"""Everything that can go wrong, grouped by what the caller should do.

Each class carries the exit code of the command line and the ``kind`` of the JSON error::

    Step0Error                     1   unexpected
    ├── UsageError                 2   fix what was typed or the settings
    ├── CredentialsError           4   log in, or use another key
    ├── SourceError                5   the source cannot be read; nothing was done
    ├── StoreError                 6   the store cannot be used
    │   └── StoreBusyError         6   wait for the other sync
    └── NoStep0Error               8   there is no step 0 to judge (yet)
"""

from __future__ import annotations

from typing import ClassVar


class Step0Error(Exception):
    """A failure that the user can read.

    Parameters
    ----------
    message : str
        What failed, with the value and where it came from.
    hint : str
        What to do next; empty where there is nothing to add.
    """

    exit_code: ClassVar[int] = 1
    kind: ClassVar[str] = "unexpected"

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message}\n{self.hint}" if self.hint else self.message


class UsageError(Step0Error):
    """Wrong usage or settings, a path that does not exist, an unknown run or setup."""

    exit_code = 2
    kind = "usage"


class CredentialsError(Step0Error):
    """No key was found, or the server refused it."""

    exit_code = 4
    kind = "credentials"


class SourceError(Step0Error):
    """A source cannot be reached or read; nothing was done with it."""

    exit_code = 5
    kind = "source"


class StoreError(Step0Error):
    """The store cannot be opened, read or written."""

    exit_code = 6
    kind = "store"


class StoreBusyError(StoreError):
    """Another process is using the store."""

    kind = "store-busy"


class NoStep0Error(Step0Error):
    """The run has no step 0 that could be judged."""

    exit_code = 8
    kind = "no-step0"
