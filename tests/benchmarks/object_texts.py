"""How long objects that were stored as texts take to read, however broken they are.

Run it as ``python -m tests.benchmarks.object_texts [COUNT]``. It prints how many mutated texts were read
without an error, and the longest time that one of them took.
"""

from __future__ import annotations

import random
import sys
import time

from step0_wandb.text.python_values import fields

KEYS = [
    "fp8",
    "bf16",
    "attention_dropout",
    "hidden_dropout",
    "num_layers",
    "tokenizer",
    "path",
    "mode",
    "extra",
]
VALUES = [
    *("'e4m3'", "True", "0.1", "None", "1e-06", "[1, 2, [3]]", "{'a': {'b': 1}}", "<Mode.FAST: 'fast'>", "torch.bfloat16"),
    *("<object at 0x7f>", "Group(kind='regular', n=8)", "PosixPath('/data')", "nan", "\"it's\"", "()"),
]  # fmt: skip
NOISE = "{}[]()<>=,:'\"\\ \n\t.*-+_0123456789aeEnN\x00…"


def whole(rng: random.Random, size: int) -> str:
    """Return an object of some `size` fields in one of its four forms."""
    pairs = [(f"{rng.choice(KEYS)}_{n}", rng.choice(VALUES)) for n in range(size)]
    called = ", ".join(f"{key}={value}" for key, value in pairs)
    table = "{" + ", ".join(f"'{key}': {value}" for key, value in pairs) + "}"
    spaced = " ".join(f"{key}={value}" for key, value in pairs)
    return rng.choice([f"Namespace({called})", f"base_args={table} models=[Model({called})]", table, spaced])


def mutated(rng: random.Random, text: str) -> str:
    """Return a text with some characters changed, a piece cut out, doubled, or nested deeply."""
    for _ in range(rng.randint(1, 8)):
        at = rng.randrange(len(text) + 1)
        end = min(len(text), at + rng.randint(0, 40))
        middle = rng.choice(
            ["", rng.choice(NOISE), text[at:end] * rng.randint(2, 20), rng.choice(NOISE) * 5000]
        )
        text = text[:at] + middle + text[end:]
    return text


def longest(count: int, seed: int) -> tuple[float, int]:
    """Read `count` mutated texts; return the longest time in seconds of the process, and how many had fields."""
    rng, slowest, read = random.Random(seed), 0.0, 0  # noqa: S311 - no secret
    for _ in range(count):
        text = mutated(rng, whole(rng, rng.choice([3, 30, 600])))
        started = time.process_time()
        read += fields(text) is not None
        slowest = max(slowest, time.process_time() - started)
    return slowest, read


if __name__ == "__main__":
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 10_000
    slowest, read = longest(count, seed=11)
    print(
        f"{count:,} mutated texts: no error, {read:,} of them objects, the longest took {1e3 * slowest:.1f} ms"
    )
