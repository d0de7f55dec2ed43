"""Files with some bytes changed, taken away or put in: nothing is lost in silence, nothing takes long.

``STEP0_MUTATIONS=50000`` is the long form.
"""

import io
import os
import random
from contextlib import suppress

import pytest

from step0_wandb.errors import NoStep0Error
from step0_wandb.profiles import load_profiles
from step0_wandb.sources.console.log import read_stream
from step0_wandb.sources.offline import messages
from step0_wandb.sources.offline.frames import BLOCK, START, Damage, LogReader, Record
from step0_wandb.step0.finder import Step0Finder
from tests.support.runs import (
    config_record,
    exit_record,
    filler_record,
    history_record,
    run_record,
    wandb_file,
)

AMOUNT = int(os.environ.get("STEP0_MUTATIONS", "300"))
FINDER = Step0Finder(load_profiles())
GAP = "train/train_rollout_logprob_abs_diff"
RECORDS = [
    run_record("abc", {f"key{number}": "x" * (number % 200) for number in range(300)}),
    *(filler_record(size) for size in (100, 3000, 40_000, 7, 900)),
    config_record({("late",): {"z": 1}}),
    *(
        history_record(
            {"train/step": step, "train/ppo_kl": 0.0, "train/pg_clipfrac": 0.0, GAP: 0.0152 + step}
        )
        for step in range(30)
    ),
    *(filler_record(size) for size in (20_000, 11)),
    exit_record(0),
]
FILE = wandb_file(*RECORDS)
LOG = (
    "(MegatronTrainRayActor pid=1) [2026-11-01 10:00:00] model.py:847 - step 0: "
    f"{{'train/loss': 0.1, 'train/ppo_kl': 0.0, 'train/pg_clipfrac': 0.0, '{GAP}': 0.0151, 'train/step': 0}}\n"
    "\r 12%|###     | 3/25 [00:01<00:09]\r{'loss': 0.07, 'reward_std': 1.3, 'epoch': 0.1}\n"
    "\x1b[36m(TaskRunner pid=1)\x1b[0m step:1 - actor/pg_clipfrac:0.0 - actor/ppo_kl:1.5e-05 - "
    "training/global_step:1 - training/rollout_probs_diff_mean:np.float64(0.0041)\n"
).encode() * 3
TOKENS = (
    b"{",
    b"}",
    b"'",
    b'"',
    b" - ",
    b"step:1 - ",
    b"step 0: ",
    b"ppo_kl",
    b"\n",
    b"\r",
    b"\x1b[",
    b"(",
    b"nan",
    b"9" * 400,
)


def mutated(data, noise):
    """Return bytes with one to three changes."""
    changed = bytearray(data)
    for _ in range(noise.randint(1, 3)):
        at = noise.randrange(len(changed))
        size = noise.choice((1, 1, 1, 2, 7, 100, 5000))
        match noise.randrange(6):
            case 0:
                changed[at] ^= 1 << noise.randrange(8)
            case 1:
                del changed[at : at + size]
            case 2:
                changed[at:at] = noise.randbytes(size)
            case 3:
                changed[at : at + size] = bytes(size)
            case 4:
                changed[at:at] = changed[at // 2 : at // 2 + size]
            case _:
                changed[at:at] = noise.choice(TOKENS) * noise.choice((1, 1, 1, 50))
        changed = changed or bytearray(b"\0")
    return bytes(changed)


def read(data):
    reader = LogReader(lambda at, size: data[at : at + size], len(data), offset=START)
    return list(reader.records())


def lost(items):
    """Return the places of the records that were not read."""
    payloads = {item.data for item in items if isinstance(item, Record)}
    return [place for place, record in enumerate(RECORDS) if record not in payloads]


@pytest.mark.parametrize("part", range(4))
def test_no_change_of_a_run_file_loses_a_record_in_silence(part):
    noise = random.Random(part)  # noqa: S311 - which bytes change need not be secret
    for _ in range(AMOUNT // 4):
        data = mutated(FILE, noise)
        items = read(data)
        missing = lost(items)
        if not any(isinstance(item, Damage) for item in items):
            # What ends inside a record was killed, or is still being written.
            assert missing == list(range(len(RECORDS) - len(missing), len(RECORDS)))
        for item in items:
            if isinstance(item, Record):
                with suppress(messages.RecordError):
                    messages.row(messages.decode(item.data).history)
                    messages.config_change(messages.decode(item.data).config)


def test_a_byte_that_was_taken_away_is_told_wherever_it_was():
    noise = random.Random(7)  # noqa: S311 - as above
    end_of_last = len(wandb_file(*RECORDS[:-1]))
    for at in [*range(START, 300), *(noise.randrange(START, end_of_last) for _ in range(AMOUNT // 3))]:
        items = read(FILE[:at] + FILE[at + 1 :])
        assert any(isinstance(item, Damage) for item in items), f"byte {at} of {len(FILE)}"


@pytest.mark.parametrize("size", [10, 40])
def test_zeros_in_a_file_are_looked_at_once(size):
    looked = [0]
    data = FILE[:BLOCK] + bytes(size * BLOCK) + FILE[BLOCK : 2 * BLOCK]

    def read_at(at, length):
        looked[0] += length
        return data[at : at + length]

    items = list(LogReader(read_at, len(data)).records())
    assert any(isinstance(item, Damage) for item in items)
    assert looked[0] < 4 * len(data) + 4 * 1024 * 1024


@pytest.mark.parametrize("part", range(4))
def test_no_change_of_a_log_ends_in_an_exception(part):
    noise = random.Random(part)  # noqa: S311 - as above
    for _ in range(AMOUNT // 4):
        with suppress(NoStep0Error):
            reading = read_stream(io.BytesIO(mutated(LOG, noise)), FINDER, enough=lambda: False)
            assert reading.parts(FINDER)[0][1].step0.status in {"found", "no-step0", "pending"}
