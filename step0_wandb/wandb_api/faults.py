"""What can go wrong between us and a W&B server, and what is done about it.

`FAULTS` is the table: event → error → retried or not → what is kept. The transport raises
`RequestFailed` with the row that applies; the caller decides by the row alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from step0_wandb.errors import CredentialsError, SourceError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from step0_wandb.errors import Step0Error

_READ_SO_FAR = "what was read before is stored; the next sync goes on there"
_ALL = "everything: the request is sent again, and if it goes on failing for fewer runs, down to one"


@dataclass(frozen=True, slots=True)
class Fault:
    """One row of the table.

    Attributes
    ----------
    event : str
        What is seen, as the end of a sentence "the server ...".
    error : type of Step0Error
        What the source raises once nothing more can be done.
    retried : bool
        Whether the same request is sent again.
    smaller : bool
        Whether asking for fewer runs may help.
    kept : str
        What of the data survives.
    hint : str
        What a person can do.
    """

    event: str
    error: type[Step0Error] = SourceError
    retried: bool = False
    smaller: bool = False
    kept: str = _READ_SO_FAR
    hint: str = ""


BAD_REQUEST = Fault(
    "does not understand the query (HTTP 400)",
    smaller=True,
    kept="everything, where the server only refuses histories inside a page: it is asked run by run",
    hint="`step0-wandb doctor` shows what this server can do.",
)
UNAUTHORIZED = Fault(
    "refuses the key (HTTP 401)", CredentialsError, hint="Log in again: `wandb login --relogin`."
)
FORBIDDEN = Fault(
    "does not let this key in (HTTP 403)", CredentialsError, hint="Ask for access, or use another key."
)
NOT_FOUND = Fault("has no GraphQL here (HTTP 404)", hint="Check WANDB_BASE_URL.")
NO_PROJECT = Fault(
    "has no such project, or this key has no access to it",
    hint="Check the spelling, or use a key that may read it. If a path was meant: it does not exist.",
)
REDIRECT = Fault("redirects elsewhere, where the key is not sent", hint="Check WANDB_BASE_URL.")
CERTIFICATE = Fault(
    "shows a certificate that is not trusted", hint="Set REQUESTS_CA_BUNDLE to your CA's certificates."
)
REFUSED = Fault("refuses the request", hint="Check WANDB_BASE_URL.")

TIMEOUT = Fault("says that the request took too long (HTTP 408)", retried=True, smaller=True, kept=_ALL)
RATE_LIMIT = Fault("asks to wait (HTTP 429)", retried=True, kept=_ALL, hint="Sync less often, or later.")
SERVER_ERROR = Fault("is in trouble", retried=True, smaller=True, kept=_ALL)
NO_CONNECTION = Fault(
    "cannot be reached, or cut the connection",
    retried=True,
    smaller=True,
    kept=_ALL,
    hint="Check WANDB_BASE_URL.",
)
TOO_SLOW = Fault("did not answer in time", retried=True, smaller=True, kept=_ALL)
TOO_LARGE = Fault("sends more than one answer may hold", smaller=True, kept=_ALL)
NO_WANDB_ANSWER = Fault(
    "answers with something that is not an answer of W&B",
    retried=True,
    smaller=True,
    kept=_ALL,
    hint="A proxy or a login page may stand between.",
)
QUERY_ERROR = Fault(
    "answers with GraphQL errors",
    retried=True,
    smaller=True,
    kept="the runs of the page that are whole; the others are asked again by name",
)

FAULTS = (
    BAD_REQUEST,
    UNAUTHORIZED,
    FORBIDDEN,
    NOT_FOUND,
    NO_PROJECT,
    REDIRECT,
    CERTIFICATE,
    REFUSED,
    TIMEOUT,
    RATE_LIMIT,
    SERVER_ERROR,
    NO_CONNECTION,
    TOO_SLOW,
    TOO_LARGE,
    NO_WANDB_ANSWER,
    QUERY_ERROR,
)

_BY_STATUS = {
    400: BAD_REQUEST,
    401: UNAUTHORIZED,
    403: FORBIDDEN,
    404: NOT_FOUND,
    408: TIMEOUT,
    429: RATE_LIMIT,
    501: REFUSED,
}


def fault_of_status(status: int) -> Fault | None:
    """Return the fault that an HTTP status stands for; None for 200 to 299."""
    if 200 <= status < 300:  # noqa: PLR2004 - HTTP's classes
        return None
    if status in _BY_STATUS:
        return _BY_STATUS[status]
    if 300 <= status < 400:  # noqa: PLR2004
        return REDIRECT
    return SERVER_ERROR if status >= 500 else REFUSED  # noqa: PLR2004


class RequestFailed(Exception):  # noqa: N818 - it says what happened, not what is raised to the user
    """One request failed, or went on failing.

    Parameters
    ----------
    fault : Fault
        The row of the table.
    detail : str
        What the server or the network said, without secrets.
    wait_s : float or None
        How long the server asks to wait before the next request, in seconds.
    data : mapping or None
        The usable part of an answer that came with errors.
    """

    def __init__(
        self,
        fault: Fault,
        detail: str = "",
        *,
        wait_s: float | None = None,
        data: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(fault.event, detail)
        self.fault = fault
        self.detail = detail
        self.wait_s = wait_s
        self.data = data

    def __str__(self) -> str:
        return f"{self.fault.event}: {self.detail}" if self.detail else self.fault.event

    def as_error(self, where: str) -> Step0Error:
        """Return the error that the user reads; `where` is the server's address."""
        return self.fault.error(f"{where} {self}", self.fault.hint)
