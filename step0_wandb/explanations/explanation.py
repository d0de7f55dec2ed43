"""Why a run got its verdict: known causes, and what its config has that no healthy run of its setup has."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from step0_wandb.checks.pages import page_of
from step0_wandb.explanations.differences import differences, nearest_setup, one_line
from step0_wandb.profiles.causes import Evidence, blind_spots, find_causes
from step0_wandb.records import FLAGGED
from step0_wandb.text.formatting import clean, count, key_text, number, when
from step0_wandb.text.nested import flatten
from step0_wandb.text.requirements import telling
from step0_wandb.text.summary import Line, Summary
from step0_wandb.verdicts.reference_gaps import published_for

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from step0_wandb.explanations.differences import Difference
    from step0_wandb.profiles import Profiles
    from step0_wandb.profiles.causes import Cause
    from step0_wandb.records import Json, JudgedRun
    from step0_wandb.store.store import Store

SHOWN = 15
"""Differences that are shown unless all are asked for."""
FEW_PACKAGES, MANY_PACKAGES = 3, 20
"""Packages that can move a gap, up to which they are a finding; and of all that differ: two images differ in
hundreds."""
SHOWN_PACKAGES = 8
MOST_PAGES = 2
PEERS = 50
"""Healthy runs that one run is compared with: the newest of its setup."""


@dataclass(frozen=True, slots=True, repr=False)
class Explanation:
    """A run with its verdict, what its config shows, and what differs from its healthy peers.

    Attributes
    ----------
    causes : tuple of Cause
        Known causes that the config shows, the likeliest first.
    differs : tuple of Difference
        Config keys whose value no peer has, the most telling first.
    peers : int
        How many healthy runs the config was compared with.
    nearest : JudgedRun or None
        The peer whose config is nearest, to compare the two in W&B.
    published : tuple of str
        What is published for the same model and sampler, in words.
    blind : tuple of str
        What step 0 cannot see in a run with this config.
    packages : tuple of str or None
        Installed packages that differ, from the nearest healthy run to this one, those first that matter
        most for the gap: ``sglang 0.5.9 -> 0.5.16``. None where they were not compared.
    packages_unknown : str
        Why they could not be compared; else empty.
    accepted : str
        Who accepted the run's setup, when, and why; else empty.
    """

    run: JudgedRun
    causes: tuple[Cause, ...]
    differs: tuple[Difference, ...]
    peers: int
    nearest: JudgedRun | None
    published: tuple[str, ...]
    blind: tuple[str, ...]
    packages: tuple[str, ...] | None = None
    packages_unknown: str = ""
    accepted: str = ""

    @property
    def findings(self) -> tuple[str, ...]:
        """Return causes, few packages, then differences, in one line each; the first two go into an alert."""
        some = telling(self.packages or ())
        installed = (
            (f"installed: {', '.join(some)}",)
            if 0 < len(some) <= FEW_PACKAGES and len(self.packages or ()) <= MANY_PACKAGES
            else ()
        )
        differ = (
            f"{clean(item.key)} is {one_line(item.value)} (healthy runs: {one_line(item.healthy)})"
            for item in self.differs
        )
        return (*(cause.text for cause in self.causes), *installed, *differ)

    def lines(self) -> Iterator[Line]:
        """Yield what is to be shown next to the verdict, its reasons and the differences."""
        for cause in self.causes:
            if not any(cause.text in reason for reason in self.run.reasons):
                yield Line("likely" if self.run.verdict in FLAGGED else "config", cause.text)
            yield Line("do", cause.advice)
        if not self.causes and self.run.verdict in FLAGGED:
            yield Line("do", self._where_to_begin())
        if place := self.run.range:
            span = f"{number(place.low)} to {number(place.high)}"
            yield Line("range", f"{span} of {count(place.n, 'run')} ({place.basis})")
        if self.accepted:
            yield Line("level", f"accepted {self.accepted}")
        for known in self.published:
            if known not in self.run.reasons:
                yield Line("published", known.removeprefix("published: "))
        if self.nearest:
            where = self.nearest.url or key_text(self.nearest.run)
            yield Line("compare", f"with {where}, the nearest healthy run")
        yield from self._about_config()
        yield from self._about_packages()
        for spot in self.blind:
            yield Line("limits", spot)
        yield from self._to_read()

    def _where_to_begin(self) -> str:
        """Return what to do where no known cause fits."""
        if self.nearest is None:
            return "no known cause fits: look at checkpoint, sampler and precision on both sides"
        name = clean(self.nearest.name) or key_text(self.nearest.run)
        if self.differs:
            return f"no known cause fits: begin with what differs below from healthy runs such as {name}"
        return (
            f"no known cause fits, and no key differs: compare code, image and weights with those of {name}"
        )

    def _to_read(self) -> Iterator[Line]:
        """Yield the pages about the first checks that did not pass."""
        found = (page_of(check.check) for check in self.run.checks if check.outcome in ("fail", "warn"))
        if pages := list(dict.fromkeys(page for page in found if page))[:MOST_PAGES]:
            yield Line("read", f"{', '.join(pages)}: what it means, and what to do")

    def _about_config(self) -> Iterator[Line]:
        if not self.peers:
            yield Line("config", "no healthy run of this or a near setup to compare it with")
        elif not self.differs:
            yield Line("config", f"no key differs from those of {count(self.peers, 'healthy run')}")
        elif len(self.differs) > 1 and not self.causes:
            yield Line("config", f"{len(self.differs)} keys differ: no single one is the cause for sure")

    def _about_packages(self) -> Iterator[Line]:
        if self.packages_unknown:
            yield Line("packages", f"could not be compared: {self.packages_unknown}")
        elif self.packages:
            shown, more = self.packages[:SHOWN_PACKAGES], len(self.packages) - SHOWN_PACKAGES
            rest = f", and {more} more" if more > 0 else ""
            yield Line("packages", f"{', '.join(shown)}{rest} (nearest healthy run -> this run)")
        elif self.packages is not None:
            yield Line("packages", "the same as in the nearest healthy run")

    def _summary(self) -> Summary:
        run = self.run
        differ = [
            Line("differs", f"{item.key}: {one_line(item.value)} (healthy: {one_line(item.healthy)})")
            for item in self.differs[:SHOWN]
        ]
        if len(self.differs) > SHOWN:
            differ.append(Line("", f"{len(self.differs) - SHOWN} more keys differ: see .differs"))
        return Summary(
            f"{run.verdict}: {run.name or run.run}",
            (
                *(Line("why", reason) for reason in run.reasons),
                Line("run", ", ".join(filter(None, (run.run, run.setup, run.user)))),
                *self.lines(),
                *differ,
            ),
            run.url,
        )

    def __str__(self) -> str:
        return self._summary().text()

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return self._summary().html()


@dataclass(frozen=True, slots=True)
class _Peer:
    """A healthy run that others are compared with, and what it logged."""

    run: JudgedRun
    config: Mapping[str, Json]
    row: Mapping[str, float]


class Explainer:
    """Explains the verdicts of runs; the peers of a setup are read from the store once for all of them.

    Parameters
    ----------
    store : Store
        Has the runs' verdicts, configs and step-0 rows.
    judged : iterable of JudgedRun
        Runs whose verdicts are newer than those of the store, with all runs of their setups.
    """

    def __init__(self, store: Store, profiles: Profiles, judged: Iterable[JudgedRun] = ()) -> None:
        self._store = store
        self._profiles = profiles
        self._accepts = store.people.accepts()
        self._peers: dict[str, list[_Peer]] = {}
        self._judged: dict[str, list[JudgedRun]] = defaultdict(list)
        for run in judged:
            if run.setup:
                self._judged[run.setup] += [run] if run.verdict == "healthy" else []

    def explain(self, run: JudgedRun) -> Explanation:
        """Explain one verdict by the newest healthy runs of its setup, or of the nearest one that has some."""
        peers = self._peers_of(run)
        configs = [peer.config for peer in peers]
        config = next(iter(self._store.runs.configs([run.run])), {})
        profile = self._profiles.by_name.get(run.profile or "")
        differs = differences(config, configs, profile)
        evidence = Evidence(
            config,
            failed={check.check for check in run.checks if check.outcome in ("fail", "warn")},
            values={name: getattr(run, name) for name in ("ppo_kl", "clip_frac", "gap", "ratio")},
            row=self._row(run),
            peers=configs,
            peer_rows=[peer.row for peer in peers],
            differs=[item.key for item in differs],
            moved=bool(run.range and run.range.moved),
        )
        return Explanation(
            run,
            causes=tuple(find_causes(profile, evidence)) if profile else (),
            differs=tuple(differs),
            peers=len(peers),
            nearest=_nearest(config, peers),
            published=tuple(known.describe(run.gap) for known in published_for(run.setup)),
            blind=tuple(blind_spots(profile, config)) if profile else (),
            accepted=self._accepted(run),
        )

    def _peers_of(self, run: JudgedRun) -> list[_Peer]:
        """Return the newest healthy runs of the setup, the newest last, else those of the nearest setup."""
        own = [peer for peer in self._read(run.setup or "") if peer.run.run != run.run][-PEERS:]
        return own or self._read(self._nearest_setup(run.setup or ""))[-PEERS:]

    def _nearest_setup(self, setup: str) -> str:
        """Return the setup with healthy runs that is most like another; empty where there is none."""
        own = [name for name, runs in self._judged.items() if runs]
        model = " · ".join(setup.split(" · ")[:2])
        stored = [name for name in self._store.verdicts.healthy_setups(model) if name not in self._judged]
        return nearest_setup(setup, [*own, *stored]) or ""

    def _read(self, setup: str) -> list[_Peer]:
        if setup not in self._peers:
            # One more than is compared with: the run itself may be among them.
            if setup in self._judged:
                dated = sorted(self._judged[setup], key=lambda run: (str(run.created_at or ""), run.run))
                runs = dated[-PEERS - 1 :]
            else:
                runs = self._store.verdicts.newest_healthy(setup, PEERS + 1) if setup else []
            configs = self._store.runs.configs([run.run for run in runs])
            self._peers[setup] = [
                _Peer(run, config, self._row(run)) for run, config in zip(runs, configs, strict=True)
            ]
        return self._peers[setup]

    def _row(self, run: JudgedRun) -> Mapping[str, float]:
        facts = self._store.runs.facts(run.run)
        return facts.step0.row if facts else {}

    def _accepted(self, run: JudgedRun) -> str:
        accept = self._accepts.get(run.setup or "")
        return f"by {accept.who}, {when(accept.at)}: {accept.why}" if accept else ""


def _nearest(config: Mapping[str, Json], peers: Sequence[_Peer]) -> JudgedRun | None:
    """Return the peer that shares most keys and values; of several the newest."""
    own = flatten(config)
    distances = [
        (sum(other.get(key) != value for key, value in own.items()), -at)
        for at, other in enumerate(flatten(peer.config) for peer in peers)
    ]
    return peers[-min(distances)[1]].run if distances else None
