"""The launch line in a console log: what was started, as the config that W&B would have had."""

from __future__ import annotations

import re
import shlex
from typing import TYPE_CHECKING

from step0_wandb.text.redact import scrub

if TYPE_CHECKING:
    from step0_wandb.records import Json

# What names the model on a launch line; a line without it is about something else.
_MODEL = re.compile(
    r"(?:^|\s)(?:--hf-checkpoint|--model[-_]name[-_]or[-_]path|\+{0,2}actor_rollout_ref\.model\.path)[ =]"
)
_OVERRIDE = re.compile(r"\+{0,2}([A-Za-z_][\w.]*)=(.*)", re.DOTALL)
_WORDS: dict[str, Json] = {"true": True, "false": False, "null": None, "none": None}


def launch_config(head: str) -> dict[str, Json]:
    """Return the flags and overrides of the last launch line, without secrets; empty where there is none.

    Examples
    --------
    >>> launch_config("+ python3 train.py --hf-checkpoint /models/Qwen3-0.6B --rollout-top-p 0.95 --colocate")
    {'hf_checkpoint': '/models/Qwen3-0.6B', 'rollout_top_p': '0.95', 'colocate': True}
    >>> launch_config("python3 -m verl.trainer.main_ppo actor_rollout_ref.model.path=Qwen/Qwen3-0.6B")
    {'actor_rollout_ref.model.path': 'Qwen/Qwen3-0.6B'}
    """
    lines = re.sub(r"\\\r?\n", " ", head).splitlines()
    launch = next((line for line in reversed(lines) if _MODEL.search(line)), None)
    return scrub(_parsed(launch)) if launch else {}


def _parsed(line: str) -> dict[str, Json]:
    try:
        words = shlex.split(line)
    except ValueError:  # a quote that the log has cut
        words = line.split()
    config: dict[str, Json] = {}
    for word, following in zip(words, [*words[1:], "--"], strict=True):
        if word.startswith("--") and len(word) > 2:  # noqa: PLR2004 - the two dashes
            name, is_joined, value = word.removeprefix("--").partition("=")
            is_bare = not is_joined and following.startswith("--")
            config[name.replace("-", "_")] = True if is_bare else _value(value if is_joined else following)
        elif override := _OVERRIDE.fullmatch(word):
            config[override[1]] = _value(override[2])
    return config


def _value(text: str) -> Json:
    return _WORDS.get(text.lower(), text)
