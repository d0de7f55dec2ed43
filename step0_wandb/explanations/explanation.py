"""Why a run got its verdict: what its config has that no healthy run of its setup has."""

from __future__ import annotations

import json
import re
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from step0_wandb.explanations.causes import Evidence, blind_spots, find_causes
from step0_wandb.profiles.expression import as_number, model_name
from step0_wandb.records import FLAGGED
from step0_wandb.text.formatting import clean, count, key_text, number, when
from step0_wandb.text.summary import Line, Sheet
from step0_wandb.verdicts.reference_gaps import published_for

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from step0_wandb.explanations.causes import Cause
    from step0_wandb.profiles import Profiles
    from step0_wandb.records import Json, JudgedRun
    from step0_wandb.store.store import Store

_NOISE = re.compile(
    r"(?:^|[._-])(?:seeds?|ports?|addr(?:ess)?|ip|hosts?|hostname|uuid|timestamp|date|rank|pid|user|save|tags?|notes"
    r"|(?:run|exp|experiment|project|group|trial|job)_?(?:name|id|group)|group"
    r"|(?:output|log|logging|save|work|tmp|temp|ckpt|checkpoint|local|default_local|tensorboard|record)_?(?:dir|path|directory))"
    r"(?:$|[._-])|^(?:wandb|use_wandb|swanlab|tensorboard)",
    re.IGNORECASE,
)
"""Keys that differ by nature from run to run and never explain a gap."""
_LONGEST_VALUE = 200
"""Verdicts that ask for a cause."""
SHOWN = 15
"""Differences that are shown unless all are asked for."""
FEW_PACKAGES = 3
"""Packages that differ, up to which they are a finding; two images differ in hundreds."""
SHOWN_PACKAGES = 8
PEERS = 50
"""Healthy runs that one run is compared with: the newest of its setup."""


@dataclass(frozen=True, slots=True)
class Difference:
    """One config key whose value no healthy run of the setup has.

    Attributes
    ----------
    value : JSON value
        The run's own value; None where it lacks the key.
    healthy : JSON value
        The value that most healthy runs have.
    share : float
        Share of the healthy runs that have this very value: the nearer to 1, the more telling.
    """

    key: str
    value: Json
    healthy: Json
    share: float = 1.0


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
        some = self.packages or ()
        installed = (f"installed: {', '.join(some)}",) if 0 < len(some) <= FEW_PACKAGES else ()
        differ = (
            f"{clean(item.key)} is {one_line(item.value)}, {one_line(item.healthy)} in the healthy runs"
            for item in self.differs
        )
        return (*(cause.text for cause in self.causes), *installed, *differ)

    def lines(self) -> Iterator[Line]:
        """Yield what is to be said beside the verdict, its reasons and the differences."""
        for cause in self.causes:
            yield Line("likely", cause.text)
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
                yield Line("known", known)
        if self.nearest:
            where = self.nearest.url or key_text(self.nearest.run)
            yield Line("compare", f"with {where}, the nearest healthy run")
        yield from self._about_config()
        yield from self._about_packages()
        for spot in self.blind:
            yield Line("unseen", spot)

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

    def _about_config(self) -> Iterator[Line]:
        if not self.peers:
            yield Line("config", "no healthy run of this or a near setup to compare it with")
        elif not self.differs:
            yield Line("config", f"no key differs from those of {count(self.peers, 'healthy run')}")
        elif len(self.differs) > 1 and not self.causes:
            yield Line("config", f"{len(self.differs)} keys differ: no single one is the cause for sure")

    def _about_packages(self) -> Iterator[Line]:
        if self.packages_unknown:
            yield Line("package", f"could not be compared: {self.packages_unknown}")
        elif self.packages:
            shown, more = self.packages[:SHOWN_PACKAGES], len(self.packages) - SHOWN_PACKAGES
            rest = f", and {more} more" if more > 0 else ""
            yield Line("package", f"{', '.join(shown)}{rest} (nearest healthy run -> this run)")
        elif self.packages is not None:
            yield Line("package", "the same as in the nearest healthy run")

    def _sheet(self) -> Sheet:
        run = self.run
        differ = [
            Line("differs", f"{item.key}: {one_line(item.value)} (healthy: {one_line(item.healthy)})")
            for item in self.differs[:SHOWN]
        ]
        if len(self.differs) > SHOWN:
            differ.append(Line("", f"{len(self.differs) - SHOWN} more keys differ: see .differs"))
        return Sheet(
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
        return self._sheet().text()

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return self._sheet().html()


def explain_judged(
    run: JudgedRun, judged: Iterable[JudgedRun], store: Store, profiles: Profiles
) -> Explanation:
    """Explain one verdict by comparing the run with the newest healthy runs of its setup.

    Where the setup has none, those of the nearest setup stand in.

    Parameters
    ----------
    judged : iterable of JudgedRun
        All runs.
    store : Store
        Has the runs' configs and step-0 rows.
    """
    peers = _peers(run, [other for other in judged if other.verdict == "healthy" and other.run != run.run])
    config = next(iter(store.configs([run.run])), {})
    configs = list(store.configs([peer.run for peer in peers]))
    differs = differences(config, configs)
    profile = profiles.by_name.get(run.profile or "")
    evidence = Evidence(
        config,
        failed={check.check for check in run.checks if check.outcome in ("fail", "warn")},
        values={name: getattr(run, name) for name in ("ppo_kl", "clip_frac", "gap", "ratio")},
        row=_row(store, run),
        peers=configs,
        peer_rows=[_row(store, peer) for peer in peers],
        differs=[item.key for item in differs],
        moved=bool(run.range and run.range.moved),
    )
    return Explanation(
        run,
        causes=tuple(find_causes(profile, evidence)) if profile else (),
        differs=tuple(differs),
        peers=len(peers),
        nearest=_nearest(config, peers, configs),
        published=tuple(known.beside(run.gap) for known in published_for(run.setup)),
        blind=tuple(blind_spots(profile, config)) if profile else (),
        accepted=_accepted(store, run),
    )


def _accepted(store: Store, run: JudgedRun) -> str:
    word = store.accepts().get(run.setup or "")
    return f"by {word.who}, {when(word.at)}: {word.why}" if word else ""


def _row(store: Store, run: JudgedRun) -> Mapping[str, float]:
    facts = store.facts(run.run)
    return facts.step0.row if facts else {}


def _nearest(
    config: Mapping[str, Json], peers: Sequence[JudgedRun], configs: Sequence[Mapping[str, Json]]
) -> JudgedRun | None:
    """Return the peer that shares most keys and values; of several the newest."""
    own = flatten(config)
    distances = [
        (sum(other.get(key) != value for key, value in own.items()), -at)
        for at, other in enumerate(map(flatten, configs))
    ]
    return peers[-min(distances)[1]] if distances else None


def _peers(run: JudgedRun, healthy: Sequence[JudgedRun]) -> list[JudgedRun]:
    near = nearest_setup(run.setup or "", {peer.setup or "" for peer in healthy})
    for setup in (run.setup, near):
        peers = [peer for peer in healthy if setup and peer.setup == setup]
        if peers:
            dated = sorted(peers, key=lambda peer: (str(peer.created_at or ""), peer.run))
            return dated[-PEERS:]
    return []


def differences(config: Mapping[str, Json], peers: Sequence[Mapping[str, Json]]) -> list[Difference]:
    """Return the keys whose value no peer has, the most telling first.

    Left out is what differs by nature: seeds, ports, names, hosts, output paths, paths that end in the
    same model, and keys whose value most peers have for themselves alone.

    Parameters
    ----------
    peers : sequence of mapping
        The configs of the healthy runs of the same setup.
    """
    if not peers:
        return []
    own = flatten(config)
    others = [flatten(peer) for peer in peers]
    found = []
    for key in sorted(own.keys() | {key for other in others for key in other}):
        if _NOISE.search(key):
            continue
        counts = Counter(_comparable(other.get(key)) for other in others)
        if _comparable(own.get(key)) in counts or _is_individual(counts):
            continue
        usual, times = counts.most_common(1)[0]
        healthy = next(other.get(key) for other in others if _comparable(other.get(key)) == usual)
        found.append(Difference(key, _short(own.get(key)), _short(healthy), times / len(others)))
    return sorted(found, key=lambda item: (-item.share, item.key))


def flatten(config: Mapping[str, Json], prefix: str = "") -> dict[str, Json]:
    """Return a nested config with dotted keys; lists and empty tables are values.

    What the client notes of each writing process stands under ``_wandb.e`` and a random name, which is
    left out.
    """
    flat: dict[str, Json] = {}
    for key, value in config.items():
        if prefix == "_wandb.e." and isinstance(value, dict):
            flat.update(flatten(value, prefix))
        elif isinstance(value, dict) and value:
            flat.update(flatten(value, f"{prefix}{key}."))
        else:
            flat[f"{prefix}{key}"] = value
    return flat


def nearest_setup(setup: str, others: Iterable[str]) -> str | None:
    """Return the setup that shares profile, model and most parts of the label with `setup`."""
    profile, model, *rest = [*setup.split(" · "), "", ""]
    parts = set(" ".join(rest).split())
    rivals = [other for other in others if other != setup and other.split(" · ")[:2] == [profile, model]]
    return min(
        rivals,
        key=lambda other: (len(parts ^ set(" ".join(other.split(" · ")[2:]).split())), other),
        default=None,
    )


def _comparable(value: Json) -> str:
    """Return a value as what is compared: numbers as numbers, a path as the model that it ends in.

    An empty table is as good as none.
    """
    if value == {}:
        return repr(None)
    if isinstance(value, str):
        value = model_name(value) if "/" in value else value
    return repr(as_number(value))


def _is_individual(counts: Counter[str]) -> bool:
    """Return whether nearly every peer has a value of its own, so that a new one says nothing."""
    return sum(counts.values()) > 2 and len(counts) > sum(counts.values()) / 2  # noqa: PLR2004 - two peers prove nothing


def one_line(value: Json) -> str:
    """Return a config value as one line of text, harmless in a terminal; ``not set`` where there is none."""
    if value is None:
        return "not set"
    return clean(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))


def _short(value: Json) -> Json:
    if isinstance(value, str) and len(value) > _LONGEST_VALUE:
        return value[: _LONGEST_VALUE - 1] + "…"
    return value
