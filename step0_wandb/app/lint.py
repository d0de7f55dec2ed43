"""What a launch will be at its first step, before any GPU starts."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from step0_wandb.app.check import read_one
from step0_wandb.app.run_selector import find_run
from step0_wandb.app.sync import job_of, profiles_of
from step0_wandb.errors import UsageError
from step0_wandb.explanations.differences import differences, nearest_setup, one_line
from step0_wandb.profiles.causes import blind_spots, causes_in
from step0_wandb.sources.launch.reader import of_config, read_launch, read_words
from step0_wandb.store import Store, kept, store_exists
from step0_wandb.text.formatting import clean, count, number
from step0_wandb.text.nested import flatten
from step0_wandb.text.paths import is_there, user_path
from step0_wandb.text.redact import scrub
from step0_wandb.text.summary import Line, Summary

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from step0_wandb.app.sync import Job
    from step0_wandb.explanations.differences import Difference
    from step0_wandb.profiles import Profile, Profiles
    from step0_wandb.profiles.causes import Cause
    from step0_wandb.records import Json, SetupRange
    from step0_wandb.sources.launch.reader import Launch
    from step0_wandb.verdicts.weight_checks import WeightCheck

PEERS = 50
"""Healthy runs that a launch is compared with: the newest of its setup."""
_MOST_SHOWN = 40
_NOT_BEFORE = frozenset({"resumed"})
"""Causes that depend on what is on the disk when the launch starts."""
_WORTH_A_LOOK = 3
"""The rank of causes that are no more than that."""
_CHECKS = ("ppo_kl", "clip_frac", "gap")


@dataclass(frozen=True, slots=True)
class Missing:
    """A check that step 0 will not have, or that will prove nothing, and what changes that.

    Attributes
    ----------
    why : str
        Why it says nothing; empty where it is simply not logged.
    set : str
        What to set; empty where no switch brings it.
    """

    check: str
    why: str = ""
    set: str = ""


@dataclass(frozen=True, slots=True, repr=False)
class Lint:
    """What a launch says of its own step 0.

    Attributes
    ----------
    framework : str or None
        Name of the profile; None where no framework is known by what was read.
    also : tuple of str
        Other frameworks that it may be of: they take the same flags.
    setup : str or None
        The setup that the run will belong to, as far as it is known.
    understood : mapping of str to value
        The config keys that were understood, of those that the profile reads.
    unknown : mapping of str to str
        Those that only running the launch would tell.
    contradictions : tuple of Cause
        What of it contradicts itself.
    widens : tuple of Cause
        What is known to widen the gap, or to lift ``ppo_kl``, by itself.
    missing : tuple of Missing
        Checks that step 0 will not have, or that prove nothing, with the switch that changes it.
    range : SetupRange or None
        Where its gap is expected.
    differs : tuple of Difference
        Keys whose value no healthy run of the setup has.
    weights : str
        Whether the weights are due for a comparison, and how; empty where the framework has none.
    blind : tuple of str
        What step 0 cannot see in such a run.
    notes : tuple of str
        What was not read.
    """

    origin: str
    framework: str | None
    also: tuple[str, ...] = ()
    setup: str | None = None
    understood: Mapping[str, Json] | None = None
    unknown: Mapping[str, str] | None = None
    contradictions: tuple[Cause, ...] = ()
    widens: tuple[Cause, ...] = ()
    missing: tuple[Missing, ...] = ()
    range: SetupRange | None = None
    differs: tuple[Difference, ...] = ()
    weights: str = ""
    blind: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def headline(self) -> str:
        """Return the outcome in one line."""
        if self.framework is None:
            return f"{self.origin}: no known framework"
        found = (
            count(len(self.contradictions), "contradiction") if self.contradictions else "no contradiction"
        )
        return f"{self.origin}: {found}"

    def lines(self) -> Iterator[Line]:
        """Yield what was understood, what is wrong, and what to know before the launch."""
        for cause in self.contradictions:
            yield Line("wrong", cause.text)
            yield Line("do", cause.advice)
        if self.framework is None:
            yield Line("do", "name it with --framework; `step0-wandb profiles` lists those that are known")
        else:
            yield from self._understood()
            yield from self._expected()
        for note in self.notes:
            yield Line("note", note)

    def _understood(self) -> Iterator[Line]:
        also = f" (or {', '.join(self.also)}: the flags are the same)" if self.also else ""
        yield Line("framework", f"{self.framework}{also}")
        yield Line("setup", self.setup or "not known")
        known = [f"{key}={one_line(value)}" for key, value in (self.understood or {}).items()]
        more = f", and {len(known) - _MOST_SHOWN} more" if len(known) > _MOST_SHOWN else ""
        yield Line("reads", (", ".join(known[:_MOST_SHOWN]) or "no key that a profile reads") + more)
        if self.unknown:
            texts = ", ".join(f"{key}={text}" for key, text in self.unknown.items())
            yield Line("open", f"{texts}: known only when it runs")

    def _expected(self) -> Iterator[Line]:
        if self.range is not None and self.range.low is not None:
            span = f"{number(self.range.low)} to {number(self.range.high)}"
            yield Line(
                "range", f"gap expected from {span} ({count(self.range.n, 'run')}, {self.range.basis})"
            )
        else:
            yield Line("range", "none yet: no healthy run of this setup is known")
        for cause in self.widens:
            yield Line("widens", f"{cause.text} ({cause.advice})")
        for item in self.missing:
            do = f"; set {item.set}" if item.set else ""
            yield Line("lacks", f"{item.check}: {item.why or 'not logged'}{do}")
        for odd in self.differs:
            yield Line("differs", f"{odd.key}: {one_line(odd.value)} (healthy: {one_line(odd.healthy)})")
        if self.weights:
            yield Line("weights", self.weights)
        for spot in self.blind:
            yield Line("limits", spot)

    def summary(self) -> Summary:
        """Return it as people read it."""
        return Summary(self.headline, tuple(self.lines()))

    def __str__(self) -> str:
        return self.summary().text()

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return self.summary().html()


def lint(
    config: str | Path | Mapping[str, Json], framework: str | None = None, store: str | Path | None = None
) -> Lint:
    """Say before a launch what its step 0 will be: the same answer as ``step0-wandb lint``.

    Parameters
    ----------
    config : str, Path or mapping
        A launch script, a config file, a run, or the config itself.
    framework : str, optional
        The name of its profile; None recognizes it.
    store : path, optional
        The store whose ranges are used; None as the settings say.

    Raises
    ------
    UsageError
        There is no such file, run or framework, or the file cannot be read.
    """
    job = job_of(store=store)
    if isinstance(config, str | Path):
        return lint_text(str(config), job, framework)
    return lint_launches([of_config(scrub(config), "the config")], job, framework)


def lint_text(text: str, job: Job, framework: str | None = None) -> Lint:
    """Lint what a text names: a script or config file, else a run."""
    path = user_path(text)
    if is_there(path) and path.is_file() and path.suffix != ".wandb":
        return lint_launches(read_launch(path), job, framework)
    if store_exists(job.loaded.store) and not is_there(path):
        with Store.open(job.loaded.store, mode="read") as store:
            if store.runs.find(text) and (record := store.runs.record(find_run(store, text))):
                return lint_launches([of_config(record.config, record.key)], job, framework)
    if not is_there(path) and "/" not in text and ":" not in text:
        raise UsageError(
            f"{text} is not a file, and no stored run has that id or name",
            "Give a launch script, a config file, or a run.",
        )
    record = read_one(text, job)[0].record
    return lint_launches([of_config(record.config, record.key)], job, framework)


def lint_words(words: Sequence[str], job: Job, framework: str | None = None) -> Lint:
    """Lint a command line."""
    return lint_launches([read_words(words, Path.cwd())], job, framework)


def lint_launches(launches: Sequence[Launch], job: Job, framework: str | None = None) -> Lint:
    """Lint the one of several launches that is most surely of a known framework, the last of equals."""
    profiles = profiles_of(job.loaded)
    if framework is not None and framework not in profiles.by_name:
        names = ", ".join(sorted(profiles.by_name))
        raise UsageError(f"unknown framework {framework!r}", f"There are: {names}.")
    ranked = [(_candidates(launch, profiles, framework), launch) for launch in launches]
    known = [(rivals, launch) for rivals, launch in ranked if rivals]
    if not known:
        return Lint(launches[-1].origin, None, notes=launches[-1].notes)
    rivals, launch = max(reversed(known), key=lambda item: _known_keys(item[0][0], item[1]))
    if len(known) > 1:
        others = ", ".join(other.origin for _, other in known if other is not launch)
        launch = replace(launch, notes=(f"there are other launches: {others}", *launch.notes))
    return _lint(launch, rivals, job)


def _candidates(launch: Launch, profiles: Profiles, framework: str | None) -> list[Profile]:
    if framework is not None:
        return [profiles.by_name[framework]]
    # A key whose value is open tells the framework as well as any other.
    return profiles.of_launch({**launch.unknown, **launch.config}, launch.program, launch.mentions)


def _known_keys(profile: Profile, launch: Launch) -> int:
    config = {**launch.unknown, **launch.config}
    return sum(profile.logged(config, key) is not None for key in profile.own_keys)


def _lint(launch: Launch, rivals: Sequence[Profile], job: Job) -> Lint:
    profile = rivals[0]
    unknown, config = _same_directory(launch)
    config, notes = _with_defaults(profile, launch, config)
    gap_metric = profile.metrics.gap[0].metric if profile.metrics.gap else None
    setup = profile.setup_label(config, gap_metric)
    causes = causes_in(profile, config, unknown)
    answer = Lint(
        launch.origin,
        profile.name,
        also=tuple(other.name for other in rivals[1:] if _is_twin(profile, other, launch)),
        setup=setup,
        understood=_understood(profile, launch.config),
        unknown={key: text for key, text in launch.unknown.items() if _matters(profile, key)},
        contradictions=tuple(cause for cause in causes if cause.contradicts),
        widens=tuple(cause for cause in causes if _is_telling(cause)),
        missing=tuple(_missing(profile, config, gap_metric)),
        blind=tuple(blind_spots(profile, config)),
        notes=(*launch.notes, *notes),
    )
    return _with_history(answer, profile, config, job)


def _same_directory(launch: Launch) -> tuple[Mapping[str, str], dict[str, Json]]:
    """Return what is open and the config; where ``load`` and ``save`` are open they may still be the same."""
    unknown, config = dict(launch.unknown), dict(launch.config)
    if "load" in unknown and unknown["load"] == unknown.get("save"):
        del unknown["load"], unknown["save"]
        config |= {"load": "/", "save": "/"}
    return unknown, config


def _with_defaults(
    profile: Profile, launch: Launch, config: dict[str, Json]
) -> tuple[dict[str, Json], list[str]]:
    """Return the config with what the framework takes where a launch says nothing."""
    table = profile.launch
    silent = {
        key: value
        for key, value in table.defaults.items()
        if profile.logged(config, key) is None and key not in launch.unknown
    }
    if launch.is_logged or not silent or not table.defaults_when.holds(profile.scope(config)):
        return config, []
    if launch.is_whole:
        return config | silent, []
    taken = ", ".join(f"{key}={value}" for key, value in silent.items())
    return config, [f"not set in what was read; {profile.title} then takes {taken}"]


def _is_telling(cause: Cause) -> bool:
    return not cause.contradicts and cause.rank < _WORTH_A_LOOK and cause.name not in _NOT_BEFORE


def _is_twin(profile: Profile, other: Profile, launch: Launch) -> bool:
    """Return whether a launch could be of the other framework just as well."""
    words = [sum(launch.mentions.get(word, 0) for word in one.launch.words) for one in (profile, other)]
    return profile.metrics.names == other.metrics.names and not words[0] and not words[1]


def _matters(profile: Profile, key: str) -> bool:
    return key in profile.own_keys or key in ("load", "ref_load", "save")


def _understood(profile: Profile, config: Mapping[str, Json]) -> dict[str, Json]:
    found = {key: profile.logged(config, key) for key in sorted({*profile.own_keys, "load", "ref_load"})}
    return {key: value for key, value in found.items() if value is not None and not isinstance(value, dict)}


def _missing(profile: Profile, config: Mapping[str, Json], gap_metric: str | None) -> Iterator[Missing]:
    """Yield the checks that say nothing, then what more step 0 could have."""
    plan = profile.plan(config, gap_metric)
    for check in _CHECKS:
        rule = getattr(plan, check)
        change = " ".join(item.set for item in profile.switches(config, check) if item.set)
        if rule.kind in ("vacuous", "skipped", "averaged") or change:
            yield Missing(check, rule.why, change)
    for entry in profile.observable:
        for switch in profile.switches(config, entry.name):
            if switch.set:
                yield Missing(entry.name, "", switch.set)


def _with_history(answer: Lint, profile: Profile, config: Mapping[str, Json], job: Job) -> Lint:
    """Return the answer with what the store knows of such runs."""
    if not store_exists(job.loaded.store):
        return replace(answer, weights=_weights(profile, config, []))
    with Store.open(job.loaded.store, mode="read") as store:
        ranges = {one.setup: one for one in store.verdicts.ranges()}
        healthy = [run for run in store.verdicts.runs() if run.verdict == "healthy" and run.setup]
        near = nearest_setup(answer.setup or "", {run.setup for run in healthy if run.setup})
        own = [run for run in healthy if run.setup == answer.setup]
        peers = own or [run for run in healthy if run.setup == near]
        newest = sorted(peers, key=lambda run: str(run.created_at or ""))[-PEERS:]
        configs = list(store.runs.configs([run.run for run in newest]))
        own_keys = flatten(config)
        differs = [item for item in differences(config, configs, profile) if item.key in own_keys]
        weights = _weights(profile, config, kept.load_weight_checks(store))
        return replace(answer, range=ranges.get(answer.setup or ""), differs=tuple(differs), weights=weights)


def _weights(profile: Profile, config: Mapping[str, Json], log: Sequence[WeightCheck]) -> str:
    """Return whether trainer and engine are due to be compared, and what to add."""
    table = profile.weights
    if table is None:
        return ""
    scope = profile.scope(config)
    if table.flag.holds(scope):
        return "this launch compares the weights of both sides" + (
            "; once is enough, so leave it out of a long run" if table.long.holds(scope) else ""
        )
    model = profile.model(config)
    if any(
        entry.status == "passed" and (entry.profile, entry.model) == (profile.name, model) for entry in log
    ):
        return f"{clean(model or '')} passed before; once for each image is enough"
    return f"no comparison is known; make a short run with {table.flags(scope)[0]}"
