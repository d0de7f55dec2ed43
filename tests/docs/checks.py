"""What the pages about checks say from the package's own data."""

from __future__ import annotations

from typing import TYPE_CHECKING

from step0_wandb.checks.pages import documented_checks, page_of
from step0_wandb.profiles import load_profiles
from step0_wandb.profiles.metrics import BOUNDS
from step0_wandb.profiles.observables import catalog
from step0_wandb.profiles.schema import CLIP_FRAC_LIMIT

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from step0_wandb.profiles.observables import Definition, Limits, Observable
    from step0_wandb.profiles.profile import Profile
    from step0_wandb.profiles.schema import Because, ExactRule, Expression

PROFILES = load_profiles().by_name
TINY = 1e-20
"""A limit below it stands for "not 0"."""
ASKS = {
    "ppo_kl": "Is the KL between the trainer's old and new log-probs 0?",
    "clip_frac": "Is the share of clipped tokens 0?",
    "gap": "Is the gap between trainer and engine in the range of the setup's healthy runs?",
    "gap-zero": "Was the gap really measured?",
    "config": "Does the config contradict itself?",
    "every-rollout": "Are `ppo_kl` and `clip_frac` 0 at the first step of every later rollout too?",
    "first-update": "Did the engine get the new weights after the first update?",
}
"""One question a check that does not stand in the catalog of observables."""


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a Markdown table."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |" for line in lines)


def code(text: object) -> str:
    """Return a text as a code span."""
    return f"`{text}`"


def number(value: float) -> str:
    """Return a limit as people write it."""
    return f"{value:.7g}"


def overview() -> str:
    """Return the table of all checks, each with its page."""
    rows = []
    for name in documented_checks():
        link = f"[`{name}`]({(page_of(name) or '').removeprefix('docs/checks/')})"
        what = catalog().get(name)
        asks = ASKS.get(name) or (f"{_first_upper(what.title)}: {_holds(what)}." if what else _bound(name))
        rows.append((link, asks, _logged_by(name)))
    return table(("check", "what it asks, and when a run is flagged", "frameworks"), rows)


def facts(name: str) -> str:
    """Return limits and metric names of one check, by framework."""
    if name in ("ppo_kl", "clip_frac"):
        return _exact(name)
    if name == "gap":
        return _gap()
    what = catalog()[name]
    entries = [(profile, entry) for profile in PROFILES.values() for entry in _entries(profile, name)]
    rows = [
        (
            profile.title,
            ", ".join(map(code, entry.metrics[:3]))
            + ("" if not entry.minus else f" minus {code(entry.minus[0])}"),
            "; ".join(_limit(limits) for limits in entry.limits) or "as above",
            _when(entry.skip) or "-",
        )
        for profile, entry in entries
    ]
    head = f"{_first_upper(what.title)}: {_holds(what)}. A value outside usually means: {what.means}."
    return f"{head}\n\n" + table(("framework", "metric", "limits", "does not apply where"), rows)


def family(prefix: str) -> str:
    """Return one section for each check of a family."""
    names = sorted(name for name in documented_checks() if name.startswith(f"{prefix}:"))
    parts = []
    for name in names:
        what = catalog().get(name)
        body = [] if what is None else [f"{_first_upper(what.title)}: {_holds(what)}. Outside: {what.means}."]
        if name.partition(":")[2] in BOUNDS and prefix == "bound":
            body.append(_bound(name))
        if logged := _logged_by(name):
            body.append(f"Frameworks: {logged}.")
        parts.append(f"## {name.partition(':')[2]}\n\n" + "\n\n".join(body))
    return "\n\n".join(parts)


def _entries(profile: Profile, name: str) -> Iterator[Observable]:
    return (entry for entry in profile.observable if entry.name == name)


def _logged_by(name: str) -> str:
    if name in ("every-rollout", "first-update"):
        found = [profile for profile in PROFILES.values() if profile.rollouts]
    elif name in ("ppo_kl", "clip_frac"):
        found = [profile for profile in PROFILES.values() if getattr(profile.metrics, name)]
    elif name in ("gap", "gap-zero"):
        found = [profile for profile in PROFILES.values() if profile.metrics.gap]
    elif name == "config":
        return "all"
    else:
        found = [
            profile
            for profile in PROFILES.values()
            if any(_entries(profile, name)) or _has_bound(profile, name)
        ]
    return "all" if len(found) == len(PROFILES) else ", ".join(profile.title for profile in found)


def _has_bound(profile: Profile, name: str) -> bool:
    return any(f"bound:{gap.statistic_bound}" == name for gap in profile.metrics.gap)


def _exact(name: str) -> str:
    rows = []
    for profile in PROFILES.values():
        metrics = getattr(profile.metrics, name)
        rules = [rule for rule in profile.exact if name in rule.checks]
        for at, rule in enumerate(rules if metrics else ()):
            rows.append((profile.title if at == 0 else "", _condition(rule.when), _rule(rule, name)))
    return table(("framework", "where", "what happens"), rows)


def _rule(rule: ExactRule, name: str) -> str:
    limit = rule.limit if name == "ppo_kl" else CLIP_FRAC_LIMIT
    why = f": {rule.why}" if rule.why else ""
    if rule.kind in ("exact", "learned") and limit is not None:
        learned = ", until three healthy runs of the setup show its noise" if rule.kind == "learned" else ""
        return f"above {number(limit)}: {rule.above}{learned}{why}"
    words = {
        "averaged": "not checked, but a large value is suspect",
        "vacuous": "proves nothing",
        "skipped": "not checked",
    }
    return words[rule.kind] + why


def _gap() -> str:
    rows = [
        (
            profile.title if at == 0 else "",
            code(gap.metric),
            gap.statistic + (f", {gap.direction}" if gap.direction else ""),
            f"{gap.ceiling:g} ({gap.ceiling_from})" if gap.ceiling else "-",
        )
        for profile in PROFILES.values()
        for at, gap in enumerate(profile.metrics.gap)
    ]
    return table(
        ("framework", "metric, the first that a row has", "statistic", "ceiling before there is a range"),
        rows,
    )


def _holds(what: Definition) -> str:
    if what.kind == "finite":
        return "broken where one is NaN or infinite"
    if what.kind == "learned":
        by = f"{what.factor:g} away" if what.scale == "share" else f"a factor {what.factor:g}"
        on = ", among runs on the same prompts and length limit" if what.prompts else ""
        return (
            f"suspect outside the range of the setup's healthy runs{on} and at least {by} from their center"
        )
    return _limit(what.limits[0])


def _limit(limits: Limits) -> str:
    """Return from where on a number is suspect, and from where on broken."""
    suspect, broken = (limits.low, limits.high), (limits.broken_low, limits.broken_high)
    parts = []
    if suspect != broken:
        parts.append(f"suspect {_outside(*suspect)}")
    if broken != (None, None):
        parts.append(f"broken {_outside(*broken)}")
    return ", ".join(parts) + (f" where {code(limits.when.text)}" if limits.when.text != "1" else "")


def _outside(low: float | None, high: float | None) -> str:
    if low is not None and 0 < low < TINY:
        return f"at 0 or above {number(high or 0.0)}"
    if low is None or high is None:
        return f"above {number(high)}" if high is not None else f"below {number(low or 0.0)}"
    return f"outside {number(low)} to {number(high)}"


def _bound(name: str) -> str:
    suspect, broken = BOUNDS[name.partition(":")[2]]
    also = (
        f"from {broken:g} on broken"
        if suspect == broken
        else f"from {suspect:g} on suspect, from {broken:g} on broken"
    )
    return f"A gap of this statistic: {also}, whatever the setup's range says."


def _condition(when: Expression) -> str:
    return "otherwise" if when.text == "1" else code(when.text)


def _when(entries: Sequence[Because]) -> str:
    return "; ".join(entry.why for entry in entries)


def _first_upper(text: str) -> str:
    return text[:1].upper() + text[1:]
