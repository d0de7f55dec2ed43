"""What is installed where stored runs ran: next to their files on disk, else on their server."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from step0_wandb.errors import SourceError, Step0Error
from step0_wandb.records import FLAGGED
from step0_wandb.sources.offline.runfile import was_written_to
from step0_wandb.text.formatting import key_text
from step0_wandb.text.requirements import FILE, changes, read_requirements

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from step0_wandb.explanations.explanation import Explanation
    from step0_wandb.records import RunRecord
    from step0_wandb.step0.finder import Step0Finder
    from step0_wandb.store import Store
    from step0_wandb.wandb_api.context import Context

LARGEST: Final = 1 << 20
"""In bytes; a list of packages has some 20 KB."""
_STAMP = re.compile(r"run-(\d{8}_\d{6})-")


@dataclass(frozen=True)
class Installed:
    """Finds the packages of stored runs.

    Attributes
    ----------
    outside : Context or None
        How to ask a server; with None only what lies on disk is read.
    give_up_s : float
        Seconds after which a server that does not give a list is left alone.
    """

    store: Store
    finder: Step0Finder
    context: Context | None = None
    give_up_s: float = 15.0

    @property
    def on_disk(self) -> Installed:
        """Return the same for what lies on disk alone."""
        return replace(self, context=None)

    def explained(self, found: Explanation) -> Explanation:
        """Return an explanation with the packages that differ from those of the nearest healthy run.

        Only a flagged run is compared; where that is not possible, the explanation says why.
        """
        if found.nearest is None or found.run.verdict not in FLAGGED:
            return found
        try:
            before, after = self.of(found.nearest.run), self.of(found.run.run)
        except Step0Error as error:
            return replace(found, packages_unknown=error.message)
        return replace(found, packages=changes(before, after))

    def of(self, key: str) -> Mapping[str, str]:
        """Return the version of each package that a run had, by its normalized name.

        Raises
        ------
        SourceError, CredentialsError, UsageError
            That is not known.
        """
        record = self.store.runs.record(key)
        if record is None:
            raise SourceError(f"{key_text(key)} is not in the store")
        text = self._on_disk(record)
        if text is None:
            text = self._on_server(record)
        return read_requirements(text.decode("utf-8", errors="replace"))

    def _on_disk(self, record: RunRecord) -> bytes | None:
        """Return the list in the directory that step 0 was read from, else in the first that has one."""
        metrics = [row for row in record.rows if self.finder.has_metrics((row,))]
        paths = sorted(self.store.runs.files(record.key), key=_began)
        trainer = [path for path in paths if any(was_written_to(path, row) for row in metrics)]
        for path in dict.fromkeys((*trainer, *paths)):
            file = Path(path).parent / "files" / FILE
            try:
                with file.open("rb") as opened:
                    text = opened.read(LARGEST + 1)
            except FileNotFoundError:
                continue
            except OSError as error:
                raise SourceError(f"{file}: {error.strerror}") from error
            return _whole(text, record)
        return None

    def _on_server(self, record: RunRecord) -> bytes:
        on_server = self.store.runs.presence([record.key])[record.key].on_server
        if self.context is None or not on_server:
            raise SourceError(f"{key_text(record.key)} has no {FILE} next to its files")
        from step0_wandb.wandb_api.address import RemoteAddress
        from step0_wandb.wandb_api.credentials import find_account
        from step0_wandb.wandb_api.download import Download, run_file
        from step0_wandb.wandb_api.http import HttpLimits

        account = find_account(self.context.places)
        if record.url and not account.server.owns(record.url):
            raise SourceError(f"{key_text(record.key)} is not on {account.server.base_url}")
        give_up_s = min(self.give_up_s, self.context.give_up_s)
        limits = HttpLimits(deadline_s=give_up_s, give_up_s=give_up_s, body_bytes=LARGEST)
        download = Download(account, self.context.places.environ, limits, self.context.file_hosts)
        address = RemoteAddress(record.entity, record.project, record.run_id)
        client = replace(self.context, give_up_s=give_up_s).client()
        text = run_file(client, download, address, FILE)
        if text is None:
            raise SourceError(f"{key_text(record.key)} has no {FILE} on its server")
        return text


def compared(installed: Installed, before: Sequence[str], after: Sequence[str]) -> tuple[str, ...]:
    """Return the packages that changed from some runs to others, as far as their lists are on disk.

    A package counts where all later runs have one version of it, which no earlier run had.
    """
    old, new = _known(installed, before), _known(installed, after)
    if not old or not new:
        return ()
    names = {name for packages in (*old, *new) for name in packages}
    moved = [
        name
        for name in names
        if len({packages.get(name) for packages in new}) == 1
        and new[0].get(name) not in {packages.get(name) for packages in old}
    ]
    return changes(_only(old[-1], moved), _only(new[0], moved))


def _known(installed: Installed, keys: Sequence[str]) -> list[Mapping[str, str]]:
    found = []
    for key in keys:
        try:
            found.append(installed.of(key))
        except Step0Error:  # nothing is claimed of a run whose list is not known
            continue
    return found


def _only(packages: Mapping[str, str], names: Sequence[str]) -> dict[str, str]:
    return {name: packages[name] for name in names if name in packages}


def _whole(text: bytes, record: RunRecord) -> bytes:
    if len(text) > LARGEST:
        raise SourceError(f"the {FILE} of {key_text(record.key)} is larger than {LARGEST >> 20} MiB")
    return text


def _began(path: str) -> tuple[str, str]:
    """Return what sorts the directories of a run as they began: the time in their names, then the path."""
    stamp = _STAMP.search(Path(path).parent.name)
    return (stamp[1] if stamp else "", path)
