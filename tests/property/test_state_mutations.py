"""States as somebody may leave them who can write to one project: nothing raises, nothing of others changes."""

import copy
import json
import random
import time
from datetime import timedelta

import pytest

from step0_wandb.publish.wandb.state import Claim, ProjectScope, State, export_state, merge_state
from step0_wandb.publish.wandb.state_document import DamagedStateError, NewerStateError, read_state
from step0_wandb.store import NOWHERE, Accept, Label, Mute, Retraction, Store
from tests.support.judged import judged, setup_range
from tests.support.stored import LATER, NOW, SERVER, SETUP, from_server

FULL = State(
    project="team/rl",
    written_at=NOW,
    runs=3,
    counts={"broken": 1, "healthy": 2},
    ranges=(setup_range(last_run=NOW, moved=1.4, moved_since=LATER),),
    labels=(Label("team/rl/aa11", "healthy", "seen", "mia", NOW),),
    accepts=(Accept(SETUP, "new image", "mia", NOW),),
    mutes=(Mute(SETUP, LATER, "mia", NOW),),
    retractions=(Retraction("label", "team/rl/bb22", NOW),),
    alerted=({"channel": "wandb", "subject": "team/rl/aa11", "level": "broken", "at": NOW.isoformat()},),
    report="VmlldzoxMQ==",
    written={"tables": "a1", "report": "b2"},
    writer="0011223344556677",
    token="89abcdef",  # noqa: S106 - names a version
    claims=(Claim("webhook", "team/rl/aa11", "broken", NOW),),
).document()
ODD = (
    *(None, True, 0, -1, 1.5, 10**30, -(10**400), 1e308, float("inf"), float("nan"), 1 << 63),
    *(
        "",
        "²",
        "٣",
        "\ud800",
        "a\ud800b",
        "\x00",
        "\u202e",
        "x" * 100_000,
        "=1+1",
        "9" * 5000,
        "<b>",
        "a/b/c",
    ),
    *("0001-01-01T00:00:00+23:59", "9999-12-31T23:59:59-23:59", "2026-01-01T00:00:00", "2026-13-01", "NaN"),
    *("step0/state/²", "step0/state/1e5", f"step0/state/{'9' * 5000}", "step0/state/-1", "step0/state/3"),
    *([], {}, [[]], [None], {"": None}, [{}] * 300, {"\ud800": 1}, "team/sft/cc33", "../x", "team/rl/aa11"),
)


def places(value, path=()):
    """Yield the path of every part of a document."""
    yield path
    parts = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, part in parts:
        yield from places(part, (*path, key))


def replaced(document, path, value):
    """Return a copy of the document with another value at a path."""
    if not path:
        return value
    found = part = copy.deepcopy(document)
    for key in path[:-1]:
        part = part[key]
    part[path[-1]] = value
    return found


def mutated(chance):
    """Return the text of a document that was changed in up to three places, or in its bytes."""
    document = FULL
    for _ in range(chance.randint(1, 3)):
        document = replaced(document, chance.choice(list(places(document))), chance.choice(ODD))
    text = bytearray(json.dumps(document).encode())
    if chance.random() < 0.3:
        for _ in range(chance.randint(1, 4)):
            if text:
                text[chance.randrange(len(text))] = chance.randrange(256)
    if chance.random() < 0.1:
        del text[chance.randrange(len(text) + 1) :]
    return bytes(text)


def known_store():
    """Return a store with runs of two projects and what people said of the other one."""
    store = Store.open(NOWHERE, mode="copy")
    store.sources.save_readings(SERVER, [from_server("aa11")], now=NOW)
    store.verdicts.save([judged(run="team/rl/aa11", verdict="broken", setup=SETUP)], [setup_range()], now=NOW)
    store.people.save(Label("team/sft/cc33", "broken", "mine", "leo", NOW))
    return store


def assert_survived(text, store):
    """Read and merge a document, then write one's own: all of it works, or the document is damaged."""
    began = time.process_time()
    try:
        state = read_state(text)
    except (DamagedStateError, NewerStateError) as error:
        said = error.message
    else:
        said = ""
    if said:
        assert said.isprintable()
        assert len(said) < 400
        return False
    scope = ProjectScope("team/rl", others=frozenset({"team/sft"}))
    merge_state(store, scope, state, now=NOW)
    merge_state(store, scope, state, now=NOW + timedelta(days=1))
    assert store.people.labels()["team/sft/cc33"].why == "mine"
    assert not [item for item in store.outbox.sent() if str(item["subject"]).startswith("team/sft")]
    mine = export_state(store, scope, store.verdicts.runs(), now=NOW)
    written = json.dumps(mine.document(), allow_nan=False).encode()
    assert read_state(written).fingerprint() == mine.fingerprint()
    assert time.process_time() - began < 5
    return True


@pytest.mark.parametrize("seed", [1, *(pytest.param(at, marks=pytest.mark.full_grid) for at in range(2, 26))])
def test_whatever_a_state_holds_it_is_taken_over_or_damaged(seed):
    """Two hundred of them by default; ``--full-grid`` takes five thousand."""
    chance = random.Random(seed)  # noqa: S311 - a seed, not a secret
    with known_store() as store:
        taken = sum(assert_survived(mutated(chance), store) for _ in range(200))
    assert 3 < taken < 197  # both ends are tried


@pytest.mark.parametrize("value", ODD, ids=lambda value: repr(value)[:30])
def test_an_odd_value_in_any_place_of_a_record_harms_nobody(value):
    with known_store() as store:
        for name in ("labels", "mutes", "retractions", "alerted", "claims", "ranges"):
            for key in FULL[name][0]:
                assert_survived(json.dumps(replaced(FULL, (name, 0, key), value)).encode(), store)


def test_a_state_about_another_project_changes_nothing_there():
    foreign = json.loads(json.dumps(FULL).replace("team/rl/aa11", "team/sft/cc33"))
    with known_store() as store:
        assert assert_survived(json.dumps(foreign).encode(), store)


def test_a_mute_of_a_setup_that_has_runs_in_another_project_is_not_this_ones_to_say():
    with known_store() as store:
        merge_state(store, ProjectScope("team/other"), read_state(json.dumps(FULL)), now=NOW)
        assert (store.people.mutes(), store.people.accepts()) == ({}, {})
        merge_state(store, ProjectScope("team/rl"), read_state(json.dumps(FULL)), now=NOW)
        assert list(store.people.mutes()) == [SETUP]


def test_what_is_dated_ahead_does_not_stand_for_ever():
    ahead = {"run": "team/rl/aa11", "label": "exclude", "why": "", "who": "eve", "at": "2199-01-01T00:00:00Z"}
    gone = {"what": "label", "name": "team/rl/aa11", "at": "2199-01-01T00:00:00Z"}
    state = read_state(json.dumps(FULL | {"labels": [ahead], "retractions": [gone]}))
    with known_store() as store:
        merge_state(store, ProjectScope("team/rl"), state, now=NOW)
        assert store.people.labels()["team/rl/aa11"].at == NOW
        assert store.people.retractions() == ()


def test_retractions_expire_and_many_of_them_take_no_time():
    many = [{"what": "label", "name": f"team/rl/{at}", "at": NOW.isoformat()} for at in range(2000)]
    state = read_state(json.dumps(FULL | {"retractions": many}))
    with known_store() as store:
        began = time.process_time()
        merge_state(store, ProjectScope("team/rl"), state, now=NOW)
        assert time.process_time() - began < 6  # a busy machine takes twice as long as an idle one
        assert len(store.people.retractions()) == 2000
        runs = store.verdicts.runs()
        later = export_state(store, ProjectScope("team/rl"), runs, now=NOW + timedelta(days=181))
        assert later.retractions == ()


@pytest.mark.parametrize("name", ["labels", "alerted", "retractions", "ranges", "claims"])
def test_more_than_a_store_ever_writes_is_damaged(name):
    with pytest.raises(DamagedStateError, match=name):
        read_state(json.dumps(FULL | {name: FULL[name] * 50_001}))
