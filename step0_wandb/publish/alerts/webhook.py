"""A webhook as Slack, Mattermost and many others take it: JSON with a ``text``, at a URL that is a secret."""

from __future__ import annotations

import html
import json
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from step0_wandb.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping


def webhook_url(name: str, environ: Mapping[str, str]) -> str:
    """Return the URL that an environment variable holds.

    Raises
    ------
    UsageError
        The variable is not set, or holds no URL; what it holds is not in the message.
    """
    url = environ.get(name, "").strip()
    if not url:
        raise UsageError(f"{name} is not set, where the settings look for the webhook's URL")
    try:
        parts = urlsplit(url)
        usable = parts.scheme in {"http", "https"} and bool(parts.hostname)
    except ValueError:  # such as a bracket that is not closed
        usable = False
    if not usable:
        raise UsageError(f"{name} holds no http or https URL")
    return url


def webhook_body(title: str, text: str) -> bytes:
    r"""Return what is posted: the title in bold, then the text, with Slack's three signs escaped.

    Examples
    --------
    >>> webhook_body("Broken at step 0: aqg8gbcd", "gap & more")
    b'{"text": "*Broken at step 0: aqg8gbcd*\\ngap &amp; more"}'
    """
    return json.dumps({"text": html.escape(f"*{title}*\n{text}", quote=False)}).encode()


def webhook_refusal(status: int) -> str:
    """Return what a webhook's answer means; empty where it took the message."""
    if 200 <= status < 300:  # noqa: PLR2004 - HTTP's classes
        return ""
    if 300 <= status < 400:  # noqa: PLR2004
        return f"redirects elsewhere (HTTP {status}), where nothing is sent"
    return f"refuses the message (HTTP {status})"
