"""A store stays small whatever its fleet looks like: what documents share is found and kept once."""

import json
import random
import zlib

import pytest
from sqlalchemy import func, select

from step0_wandb.store import Store
from step0_wandb.store.schema import templates
from step0_wandb.store.templates import Templates

KEYS = 300


@pytest.fixture
def store(tmp_path):
    with Store.open(tmp_path / "step0.db", mode="write") as opened:
        yield opened


def config(family, number, *, own=25):
    """Return one of many configs of a family: some keys are the run's own, the others the family's."""
    rng, shared = random.Random(f"{family}/{number}"), random.Random(family)  # noqa: S311 - the same each time
    values = {f"key_{at}": f"{shared.getrandbits(24):x}" for at in range(KEYS)}
    return values | {f"key_{at}": f"{rng.getrandbits(24):x}" for at in rng.sample(range(40), own)}


def pack_all(store, configs):
    """Return the templates made for these configs, and the mean size of what each needs in addition to them."""
    sizes = []
    with store._database.transaction() as connection:
        book = Templates(connection)
        packed = [book.pack("config", each) for each in configs]
        assert [Templates(connection).unpack(each.template, each.body) for each in packed] == configs
        sizes = [len(each.body) for each in packed]
        made = connection.execute(select(func.count()).select_from(templates)).scalar_one()
    return made, sum(sizes) / len(sizes)


def test_the_runs_of_one_family_share_one_template(store):
    made, size = pack_all(store, [config("a", at) for at in range(60)])
    assert made == 1
    assert size < 350  # 25 to 50 values of 3 random bytes, written as 6 digits, and where they go


def test_families_get_a_template_each_however_they_are_mixed(store):
    made, size = pack_all(store, [config("abcdef"[at % 6], at) for at in range(90)])
    assert made == 6
    assert size < 350


def test_what_a_store_learned_serves_the_next_sync(store):
    configs = [config("ab"[at % 2], at) for at in range(20)]
    first, _ = pack_all(store, configs)
    again, _ = pack_all(store, configs)
    assert (first, again) == (2, 2)


def test_configs_without_anything_in_common_cost_little_more_than_each_compressed_alone(store):
    configs = [config(f"family {at}", at) for at in range(60)]
    made, size = pack_all(store, configs)
    alone = sum(len(zlib.compress(json.dumps(each).encode(), 9)) for each in configs) / len(configs)
    assert made <= 8 + 60 / 16
    assert size < alone


def test_measurements_alone_never_make_a_template(store):
    rows = [{"0": {"order": at, "values": {f"m{n}": at + n / 7 for n in range(60)}}} for at in range(50)]
    with store._database.transaction() as connection:
        packed = {Templates(connection).pack("rows", each).template for each in rows}
    assert len(packed) == 1
