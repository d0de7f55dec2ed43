"""The launch line in a console log: what was started, as the config that W&B would have had."""

from __future__ import annotations

import re
import shlex
from typing import TYPE_CHECKING

from step0_wandb.sources.launch.command_line import parse_command
from step0_wandb.sources.launch.shell_values import Word
from step0_wandb.text.redact import scrub

if TYPE_CHECKING:
    from step0_wandb.records import Json

# What names the model on a launch line; a line without it is about something else.
_MODEL = re.compile(
    r"(?:^|\s)(?:--hf-checkpoint|--model[-_]name[-_]or[-_]path|\+{0,2}actor_rollout_ref\.model\.path|"
    r"(?:swift|megatron)\s+rlhf\s.*--model)[ =]"
)


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
    settings = parse_command([Word(word) for word in words]).settings
    return {item.key: item.value for item in settings if not item.is_file}
