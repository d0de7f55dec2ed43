"""The weight-check log: for which model and image trainer and engine were compared, and for which not.

Miles and its kin can compare the weights of both sides before the first rollout. A mismatch ends the job
before it logs a row: so a run with the flag and a row has passed, and one that ended without a row has
failed, or died before. That is needed once for each model and image, not in every long run.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import datetime
from itertools import islice
from typing import TYPE_CHECKING, Any, Literal, cast

from step0_wandb.profiles.catalog import preferred
from step0_wandb.profiles.profile import ARCHITECTURE
from step0_wandb.records import ALIVE
from step0_wandb.text.json_documents import plain
from step0_wandb.text.nested import lookup
from step0_wandb.text.requirements import changes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from step0_wandb.profiles import Profile, Profiles
    from step0_wandb.profiles.schema import Weights
    from step0_wandb.records import Json

    Installed = Callable[[str], Mapping[str, str]]

Status = Literal["failed", "due", "passed"]
ORDER: tuple[Status, ...] = ("failed", "due", "passed")
FAILED = "the weights differ, or it died before step 0 for another reason: its log says which"
ONCE = "this long run carried the flag; once is enough"
CLIENT_NOTES = "_wandb"
"""The config key under which the W&B client notes image and commit."""
COMMIT_LENGTH = 12
PACKAGES = (
    *("sglang", "vllm", "sgl-kernel", "torch", "transformers", "miles", "slime", "vime"),
    *("megatron-core", "megatron-bridge", "mbridge", "transformer-engine", "flash-attn"),
)
"""What moves or holds the weights; where these are as they were, the image counts as the same."""


@dataclass(frozen=True, slots=True)
class WeightCheck:
    """What is known of one model and image.

    Attributes
    ----------
    image : str
        The container image, else the git commit, else the installed packages; empty where nothing is
        known: then the model alone counts.
    status : {"failed", "due", "passed"}
        Of the newest run with the flag that has ended; ``due`` where none has, or for other packages.
    run : str or None
        Key of the run that the status rests on.
    checked_at : datetime or None
        When that run was created.
    runs : int
        Runs of this model and image.
    last_run : datetime or None
        When the newest of them was created.
    projects : tuple of str
        Their projects, ``entity/project``.
    notes : tuple of str
        Why a comparison proves less, and what else to know.
    add : tuple of str
        What to add to a short run so that it compares the weights, in each form that launchers take.
    """

    profile: str
    model: str
    image: str
    status: Status
    run: str | None
    checked_at: datetime | None
    runs: int
    last_run: datetime | None
    projects: tuple[str, ...]
    notes: tuple[str, ...]
    add: tuple[str, ...]

    @property
    def what(self) -> str:
        """Return the model and its image."""
        return self.model + (f" on {self.image}" if self.image else "")


@dataclass(frozen=True, slots=True)
class ComparedRun:
    """A run as the log sees it.

    Attributes
    ----------
    profile : str or None
        None while it has logged no metric.
    logged : bool
        Whether it came to its first row, which no mismatch would have let it.
    config : mapping
        At least the keys that `keys_of` names; all of it where the profile is None.
    """

    run: str
    state: str
    created_at: datetime | None
    profile: str | None
    logged: bool
    config: Mapping[str, Json]

    @property
    def age(self) -> tuple[str, str]:
        """Return what sorts runs from the oldest to the newest."""
        return (self.created_at.isoformat() if self.created_at else "", self.run)

    @property
    def is_over(self) -> bool:
        """Whether it has shown what came of its comparison."""
        return self.logged or self.state not in ALIVE


def keys_of(profiles: Profiles) -> tuple[str, ...]:
    """Return the config keys that the log reads."""
    names = {CLIENT_NOTES}.union(*map(keys_of_profile, profiles.by_name.values()))
    return tuple(sorted(names))


def keys_of_profile(profile: Profile) -> frozenset[str]:
    """Return the config keys that the log reads of one profile's runs."""
    table = profile.weights
    if table is None:
        return frozenset()
    model = [key.value for key in profile.setup if key.label == "model"]
    weaker = [entry.when for entry in table.weaker]
    named = [profile.let[name] for name in profile.let if name == ARCHITECTURE]
    more = [entry.when for entry in table.more]
    return profile.paths_of(table.flag, table.long, *more, *weaker, *model, *named)


def weight_check_log(
    runs: Iterable[ComparedRun], profiles: Profiles, installed: Installed = lambda _run: {}
) -> list[WeightCheck]:
    """Return the log: what failed first, then what is due; within each, what ran last comes first.

    Frameworks that cannot compare weights are not in it.

    Parameters
    ----------
    installed : callable
        Returns the packages of a run by its key, nothing where they are not known. Asked of two runs a
        model at most, where the config names neither image nor commit.
    """
    log = WeightLog(profiles)
    for run in runs:
        log.add(run)
    return log.entries(installed)


COMPARING_KEPT = 50
"""Runs with the flag that are kept of one model and image: the newest."""


class WeightLog:
    """The log as it grows: what is known of each model and image.

    Parameters
    ----------
    document : JSON value
        What `document` returned, to go on from there; None begins an empty one.
    """

    def __init__(self, profiles: Profiles, document: Json = None) -> None:
        self._profiles = profiles
        self._groups: dict[tuple[str, str, str], _Group] = {}
        self._entries: dict[tuple[str, str, str], WeightCheck] = {}
        for item in cast("list[dict[str, Any]]", document or []):
            profile = profiles.by_name.get(item["profile"])
            if profile and profile.weights:
                group = _Group.from_document(profile, item)
                self._groups[group.key] = group
                self._entries[group.key] = _of_json(item["entry"])

    def add(self, run: ComparedRun, *, is_new: bool = True) -> None:
        """Take in a run; one that was there already (not `is_new`) takes its own place."""
        profile = _profile_of(run, self._profiles)
        model = profile.model(run.config) if profile and profile.weights else None
        if profile is None or model is None:
            return
        key = (profile.name, model, image_of(run.config))
        group = self._groups.setdefault(key, _Group(profile, model, key[2], run))
        group.add(run, is_new=is_new or not group.runs)
        self._entries.pop(key, None)

    def entries(self, installed: Installed = lambda _run: {}) -> list[WeightCheck]:
        """Return what failed first, then what is due; within each, what ran last comes first."""
        for key, group in self._groups.items():
            if key not in self._entries:
                self._entries[key] = group.entry(installed)
        return sorted(self._entries.values(), key=_order)

    def document(self) -> Json:
        """Return all that is known as JSON; called after `entries`."""
        found = (
            group.document() | {"entry": plain(self._entries[key])} for key, group in self._groups.items()
        )
        return list(found)


def image_of(config: Mapping[str, Json]) -> str:
    """Return the image that a run was started in, as its client noted it, else its git commit.

    Examples
    --------
    >>> image_of({"_wandb": {"e": {"x7f3": {"docker": "radixark/miles:v5", "git": {"commit": "c1899de"}}}}})
    'radixark/miles:v5'
    """
    notes = dict(reversed(list(_notes(config.get(CLIENT_NOTES)))))
    return notes.get("docker") or notes.get("commit", "")[:COMMIT_LENGTH]


def from_json(document: Json) -> list[WeightCheck]:
    """Return the log from the JSON that `json_documents.plain` made of it; None is an empty one."""
    return [_of_json(item) for item in cast("list[dict[str, Any]]", document or [])]


@dataclass(slots=True)
class _Group:
    """The runs of one model and image; of those that compare the newest, the oldest first."""

    profile: Profile
    model: str
    image: str
    newest: ComparedRun
    comparing: list[ComparedRun] = field(default_factory=list)
    runs: int = 0
    projects: set[str] = field(default_factory=set)

    @property
    def key(self) -> tuple[str, str, str]:
        return self.profile.name, self.model, self.image

    def add(self, run: ComparedRun, *, is_new: bool) -> None:
        self.runs += is_new
        self.projects.add(run.run.rpartition("/")[0])
        if run.age >= self.newest.age or run.run == self.newest.run:
            self.newest = run
        if self._table.flag.holds(self.profile.scope(run.config)):
            others = [other for other in self.comparing if other.run != run.run]
            self.comparing = sorted([*others, run], key=lambda run: run.age)[-COMPARING_KEPT:]

    def document(self) -> dict[str, Any]:
        names = sorted(keys_of_profile(self.profile) - {CLIENT_NOTES})
        runs = [self._kept(run, names) for run in (self.newest, *self.comparing)]
        return {
            "profile": self.profile.name,
            "model": self.model,
            "image": self.image,
            "runs": self.runs,
            "projects": sorted(self.projects),
            "kept": runs,
        }

    @classmethod
    def from_document(cls, profile: Profile, item: Mapping[str, Any]) -> _Group:
        newest, *comparing = (
            ComparedRun(
                **{**run, "created_at": run["created_at"] and datetime.fromisoformat(run["created_at"])}
            )
            for run in item["kept"]
        )
        projects = set(item["projects"])
        return cls(profile, item["model"], item["image"], newest, comparing, item["runs"], projects)

    def _kept(self, run: ComparedRun, names: Iterable[str]) -> Json:
        """Return a run with the part of its config that the log reads."""
        config = {name: value for name in names if (value := lookup(run.config, name)) is not None}
        return plain(
            replace(run, profile=self.profile.name, config=config | {CLIENT_NOTES: {"docker": self.image}})
        )

    @property
    def _table(self) -> Weights:
        assert self.profile.weights is not None  # noqa: S101 - `weight_check_log` has looked
        return self.profile.weights

    def entry(self, installed: Installed) -> WeightCheck:
        """Return what is known of them."""
        newest, decisive = self.newest, self._decisive()
        packages = {} if self.image else _that_matter(installed(newest.run))
        before = _that_matter(installed(decisive.run)) if packages and decisive else {}
        moved = changes(before, packages) if before else ()
        scope = self.profile.scope(newest.config)
        return WeightCheck(
            profile=self.profile.name,
            model=self.model,
            image=self.image or ", ".join(f"{name} {packages[name]}" for name in packages),
            status="due" if decisive is None or moved else "passed" if decisive.logged else "failed",
            run=decisive.run if decisive else None,
            checked_at=decisive.created_at if decisive else None,
            runs=self.runs,
            last_run=newest.created_at,
            projects=tuple(sorted(self.projects)),
            notes=(*self._notes_on(decisive, moved), *self._notes_on_newest()),
            add=self._table.flags(scope),
        )

    def _decisive(self) -> ComparedRun | None:
        """Return the run that the status rests on: the newest that failed, or the best since that passed."""
        since: list[ComparedRun] = []
        for run in self.comparing:
            if not run.is_over:
                continue
            if since and not (since[-1].logged and run.logged):
                since.clear()
            since.append(run)
        return min(reversed(since), key=lambda run: len(self._weaker(run)), default=None)

    def _weaker(self, run: ComparedRun) -> list[str]:
        scope = self.profile.scope(run.config)
        return [entry.why for entry in self._table.weaker if entry.when.holds(scope)]

    def _notes_on(self, decisive: ComparedRun | None, moved: Sequence[str]) -> Iterator[str]:
        if decisive is None:
            return
        if not decisive.logged:
            yield FAILED
            earlier = (run.run for run in reversed(self.comparing) if run.logged)
            yield from (f"{run} had passed before" for run in islice(earlier, 1))
        if moved:
            yield f"checked with other packages: {', '.join(moved)}"
        yield from self._weaker(decisive)

    def _notes_on_newest(self) -> Iterator[str]:
        for run in self.comparing[-1:]:
            if not run.is_over:
                yield f"{run.run} is comparing now"
            elif run.logged and self._table.long.holds(self.profile.scope(run.config)):
                yield ONCE


def _profile_of(run: ComparedRun, profiles: Profiles) -> Profile | None:
    """Return a run's profile; one that ended without a metric shows it by its flag and its config."""
    if run.profile is not None:
        return profiles.by_name.get(run.profile)
    return preferred(profiles.comparing(run.config), run.config)


def _order(entry: WeightCheck) -> tuple[int, float, str, str, str]:
    age = -entry.last_run.timestamp() if entry.last_run else 0.0
    return (ORDER.index(entry.status), age, entry.model, entry.image, entry.profile)


def _that_matter(packages: Mapping[str, str]) -> dict[str, str]:
    return {name: packages[name] for name in PACKAGES if name in packages}


def _notes(value: Json) -> Iterator[tuple[str, str]]:
    """Yield each text of the client's notes with its name, at any depth, writer by writer."""
    if isinstance(value, dict):
        for key, inner in sorted(value.items()):
            if isinstance(inner, str) and inner:
                yield key, inner
            else:
                yield from _notes(inner)


def _of_json(item: dict[str, Any]) -> WeightCheck:
    times = {name: item[name] and datetime.fromisoformat(item[name]) for name in ("checked_at", "last_run")}
    lists = {name: tuple(item[name]) for name in ("projects", "notes", "add")}
    return WeightCheck(**(item | times | lists))
