"""A first profile for a framework that nobody knows, guessed from the names and the config of one run.

Every guess is marked in the TOML file. What decides is the last part of a name, and the value in the run:
a signed number is not a mean absolute difference, and a PPO-KL that is far from 0 is not the first step's.
"""

from __future__ import annotations

import json
import keyword
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from step0_wandb.errors import UsageError
from step0_wandb.profiles.model_names import names_with
from step0_wandb.text.formatting import clean, number
from step0_wandb.text.nested import flatten

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from step0_wandb.records import HistoryRow, Json

NAME = re.compile(r"[a-z0-9][a-z0-9_-]*")
EXACT = 1e-9
"""A PPO-KL up to here in the run says that its rows are one optimizer step each."""

_OTHER_SIDE = r"rollout|engine|sampl|infer|generat|(?:^|[/_.])gen_|behav|mismatch|vllm|sglang|off_?policy"
_NO_MEAN = r"(?:max|min|std|var|chi2|ess|p\d\d)(?:$|/)|corr$|pearson"
_DIFFERENCE = r"log_?p[a-z]*_(?:abs_)?diff|prob_error"
_ROLES = {
    # A plain `kl` or `policy_kl` is the KL to the reference in most frameworks.
    "ppo_kl": (r"ppo_?kl|approx_?kl|policykl|old_kl", rf"ref|coef|{_OTHER_SIDE}|{_NO_MEAN}"),
    "clip_frac": (
        r"clip(?:ped)?_?(?:frac|fraction|ratio)",
        r"completion|response|length|eps|low|high|lower|dual|no_clip",
    ),
    "gap": (
        rf"(?=.*(?:{_OTHER_SIDE}))(?=.*(?:diff|kl|gap|mult|ppl|error))|{_DIFFERENCE}",
        rf"reward|length|len$|time|version|count|mismatch_rate|approx_?kl|{_NO_MEAN}",
    ),
    "entropy": (r"entropy(?:_loss|/mean|_mean|_avg)?$", r"coef"),
}
_OBSERVABLES = {
    "ref_kl": (r"(?=.*ref)(?=.*kl)|kl_loss|kl_penalty", rf"coef|{_NO_MEAN}"),
    "gradient": (r"grad_?norm", r"critic"),
    "termination": (r"truncat|clipped_ratio|(?:response|length).*clip_ratio", r"time"),
    "learned:entropy": _ROLES["entropy"],
    "learned:grad_norm": (r"grad_?norm", r"critic"),
    "learned:response_length": (r"(?:response|completion|answer).*len|mean_length", r"max|min|std|clip"),
    "learned:reward": (r"reward(?:s|/mean|_mean)?$|score/mean$", r"std|ref"),
}
_STATISTICS = (
    (r"k3|low_var|_v2", "mean k3 estimate of the KL divergence", 'bound = "k3"\nspread = 0.06\n'),
    (r"ppl|perplex", "absolute difference of log perplexities", 'bound = "log-perplexity"\n'),
    (r"(?<!log)(?<!log_)prob(?!.*log)", "mean absolute probability difference", 'unit = "probability"\n'),
    (r"mult|ratio|is_weight", "mean ratio of probabilities", 'unit = "ratio"\nperfect = 1\n'),
    (r"(?<!log)kl(?!.*abs)", "mean estimate of the KL divergence", 'bound = "k3"\nspread = 0.06\n'),
    (r"", "mean absolute log-prob difference", ""),
)
_SMALL = "{key} if {key} > 0 and {key} < 100000 else None"  # some frameworks write "all" as a huge number
_SETUP = {
    "temperature": (r"temperature$", "1", "{key}"),
    "top_p": (r"top_?p$", "1", "{key}"),
    "top_k": (r"top_?k$", "", _SMALL),
    "engine": (r"(?:rollout|generation|inference|engine).*(?:backend|name|type)$|^engine$", "run", "{key}"),
    "backend": (r"(?:train|actor|trainer).*(?:backend|strategy)$|^strategy$", "run", "{key}"),
    "trainer": (r"(?:^|[._])(?:dtype|precision|torch_dtype|mixed_precision)$", "run", "{key}"),
    "quantization": (r"quantization$|kv_cache_dtype$", "run", "{key}"),
    "lora": (r"lora[._]rank$|lora_r$|use_lora$", "", "'yes' if {key} else None"),
}
"""By label which config keys are meant, the value that a label does not print (``run`` is the run's own), and how it is read."""
_MODEL = re.compile(
    r"checkpoint$|model$|pretrain|weights$|base_model|(?:model|actor|policy).*(?:path|name|id|dir)$|(?:^|[._])(?:name_or_)?path$"
)
_NOT_THIS = re.compile(
    r"eval|valid|(?:^|[._])test|critic|teacher|judge|reward|(?:^|[.])ref(?:erence)?(?:$|[._])|tokenizer|draft"
)


@dataclass(frozen=True, slots=True)
class ProfileDraft:
    """A profile's TOML text, and the names in the run that it reads nothing from."""

    text: str
    unread: tuple[str, ...]


@dataclass(slots=True)
class _Run:
    """The numbers of the first row that has each name, and how the counters count."""

    rows: Sequence[HistoryRow]
    config: Mapping[str, Json]
    values: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for row in self.rows:
            for name, value in row.values.items():
                self.values.setdefault(name, value)

    def matching(self, wanted: str, refused: str) -> list[str]:
        """Return the names that match one pattern and not another, the shortest first."""
        names = (name for name in self.values if not name.startswith("_"))
        found = [
            name
            for name in names
            if re.search(wanted, name, re.IGNORECASE) and not re.search(refused, name, re.IGNORECASE)
        ]
        return sorted(found, key=lambda name: (len(name), name))

    def shown(self, name: str) -> str:
        return f"by its name; {number(self.values[name])} in this run"


def draft_profile(
    name: str, run: str, rows: Sequence[HistoryRow], config: Mapping[str, Json]
) -> ProfileDraft:
    """Return a first profile for a framework, guessed from one run of it.

    Parameters
    ----------
    name : str
        What the profile will be called.
    run : str
        What the run is called, for the file's first line.

    Raises
    ------
    UsageError
        The name cannot be a profile's, or no metric of the run looks like one that a profile needs.
    """
    if not NAME.fullmatch(name):
        raise UsageError(
            f"{name!r} cannot be the name of a profile",
            "Take small letters, digits, _ and -, such as my_trainer.",
        )
    seen = _Run(rows, config)
    roles = _roles(seen, run)
    metrics = [*roles["ppo_kl"], *roles["clip_frac"], *roles["gap"]]
    observables = {role: seen.matching(*patterns) for role, patterns in _OBSERVABLES.items()}
    step = _step_key(seen, metrics)
    finite = seen.matching(r"loss|entropy|reward|grad_?norm", rf"std|time|{_NO_MEAN}")
    read = {step, *finite, *(name for some in (*roles.values(), *observables.values()) for name in some)}
    unread = tuple(sorted(name for name in seen.values if name not in read and not name.startswith("_")))
    origin = (
        f"# Written by `step0-wandb profiles --new {name}` from the run {clean(run)}. Check each guess.\n"
    )
    parts = [
        f'{origin}name = "{name}"\ntitle = "{name}"\n',
        *_metric_tables(seen, roles),
        _step_table(seen, step, metrics),
        *_setup_tables(config),
        *_rules(seen, roles),
        *_observable_tables(seen, observables, finite),
        "".join(f"# Not read: {clean(name)}\n" for name in unread),
    ]
    return ProfileDraft("\n".join(part for part in parts if part), unread)


def _roles(seen: _Run, run: str) -> dict[str, list[str]]:
    """Return the names that each of the checked metrics may have."""
    roles = {role: seen.matching(*patterns) for role, patterns in _ROLES.items()}
    if not any(roles[role] for role in ("ppo_kl", "clip_frac", "gap")):
        raise UsageError(
            f"No metric of {clean(run)} looks like a KL, a clip fraction or a gap between trainer and engine",
            "`step0-wandb profiles --explain RUN` lists its metrics; docs/adding-a-framework.md explains the file.",
        )
    return roles


def _metric_tables(seen: _Run, roles: Mapping[str, Sequence[str]]) -> Iterator[str]:
    lines = [_listed(role, roles[role], seen) for role in ("ppo_kl", "clip_frac", "entropy") if roles[role]]
    yield "[metrics]\n" + "".join(lines)
    for metric in sorted(roles["gap"], key=lambda metric: (_rank(metric), len(metric))):
        _, statistic, more = _STATISTICS[_rank(metric)]
        signed = "signed = true  # guess: it is negative in this run\n" if seen.values[metric] < 0 else ""
        yield (
            f"[[metrics.gap]]\nmetric = {_text(metric)}  # guess: {seen.shown(metric)}\n"
            f"statistic = {_text(statistic)}  # guess: by its name\n{more}{signed}"
        )


def _rank(metric: str) -> int:
    """Return which statistic a gap seems to be; a mean absolute difference of log-probs goes first."""
    found = next(
        at for at, (pattern, *_) in enumerate(_STATISTICS) if re.search(pattern, metric, re.IGNORECASE)
    )
    return -1 if found == len(_STATISTICS) - 1 else found


def _step_key(seen: _Run, metrics: Iterable[str]) -> str:
    """Return the name that counts the rows with metrics: whole numbers that never fall."""
    wanted = set(metrics)
    rows = [row.values for row in seen.rows if not wanted.isdisjoint(row.values)]
    names = [
        name for name in seen.matching(r"step|iter|batch|update", r"time|size|per_|/s$") if name in rows[0]
    ]

    def counts(name: str) -> bool:
        steps = [row[name] for row in rows if name in row]
        return all(step == int(step) for step in steps) and steps == sorted(steps)

    named = [name for name in names if counts(name)]
    return next((name for name in named if "global" in name), next(iter(named), "_step"))


def _step_table(seen: _Run, step: str, metrics: Iterable[str]) -> str:
    wanted = set(metrics)
    first = next((row.values.get(step, 0) for row in seen.rows if not wanted.isdisjoint(row.values)), 0)
    return (
        f"[step]\nkeys = [{_text(step)}]  # guess: it counts the rows that have these metrics\n"
        f'first = "{number(first)}"  # guess: the first of them in this run\n'
    )


def _setup_tables(config: Mapping[str, Json]) -> Iterator[str]:
    flat = {key: value for key, value in flatten(config).items() if not key.startswith("_wandb")}
    models = names_with()
    paths = [
        key
        for key, value in flat.items()
        if isinstance(value, str) and _MODEL.search(key) and models.name(value)
    ]
    path = min(
        (key for key in paths if not _NOT_THIS.search(key)),
        key=lambda key: (key.count("."), len(key)),
        default="",
    )
    if path:
        yield f'[[setup]]\nlabel = "model"\nvalue = {_text(f"model({_key(path)})")}  # guess: {_said(flat[path])} in this run\n'
    else:
        yield '[[setup]]\nlabel = "model"\nvalue = "None"  # no key of this run names a model: write model(KEY)\n'
    for label, (pattern, default, value) in _SETUP.items():
        keys = [
            key for key in flat if re.search(pattern, key) and not _NOT_THIS.search(key) and _plain(flat[key])
        ]
        if not keys:
            continue
        # Of several, the sampler's own counts, then the one that stands highest.
        key = min(keys, key=lambda key: (not re.search(_OTHER_SIDE, key), key.count("."), len(key)))
        value_of_run = _text(str(flat[key])) if default == "run" else default
        more = f"default = {value_of_run}\n" if default else ""
        yield (
            f"[[setup]]\nlabel = {_text(label)}\nvalue = {_text(value.format(key=_key(key)))}"
            f"  # guess: {_said(flat[key])} in this run\n{more}"
        )


def _rules(seen: _Run, roles: Mapping[str, Sequence[str]]) -> Iterator[str]:
    """Yield how PPO-KL and clip fraction apply, as the run shows it."""
    exact = [name for role in ("ppo_kl", "clip_frac") for name in roles[role][:1]]
    if not exact:
        return
    if all(abs(seen.values[name]) <= EXACT for name in exact):
        why = "# guess: they are 0 in this run, so that a row is one optimizer step\n"
        yield f'[[exact]]\n{why}kind = "exact"\nlimit = {EXACT:g}\nabove = "suspect"\n'
    else:
        why = (
            "# guess: they are not 0 in this run; where a row is one optimizer step, it may be a broken one\n"
        )
        yield f'[[exact]]\n{why}kind = "averaged"\nwhy = "a row may be several optimizer steps, so it need not be 0"\n'


def _observable_tables(
    seen: _Run, observables: Mapping[str, Sequence[str]], finite: Sequence[str]
) -> Iterator[str]:
    if finite:
        yield f'[[observable]]\nname = "finite"\nmetrics = {json.dumps(finite, ensure_ascii=False)}\n'
    for role, names in observables.items():
        if names:
            yield f"[[observable]]\nname = {_text(role)}\n" + _listed("metrics", names[:1], seen)


def _listed(key: str, names: Sequence[str], seen: _Run) -> str:
    return f"{key} = {json.dumps(list(names), ensure_ascii=False)}  # guess: {seen.shown(names[0])}\n"


def _text(text: str) -> str:
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def _key(path: str) -> str:
    """Return the expression that reads a config key."""
    plain = all(part.isidentifier() and not keyword.iskeyword(part) for part in path.split("."))
    return path if plain else f"key({_text(path)})"


def _said(value: object) -> str:
    return clean(str(value))[:60]


def _plain(value: object) -> bool:
    return value is not None and not isinstance(value, list | dict)
