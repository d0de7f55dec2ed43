"""The state that travels: exactly what was known comes back, and nothing else gets in."""

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from step0_wandb.publish.wandb.state import (
    Claim,
    ProjectScope,
    State,
    export_state,
    fingerprint,
    merge_state,
)
from step0_wandb.publish.wandb.state_document import DamagedStateError, NewerStateError, read_state
from step0_wandb.store import NOWHERE, Accept, Label, Mute, Retraction, Store
from step0_wandb.store.people import BY_TAG
from tests.support.judged import judged, setup_range
from tests.support.stored import LATER, NOW, SERVER, SETUP, from_server

ALERT = {"channel": "wandb", "subject": "team/rl/aa11", "level": "broken", "at": NOW.isoformat()}
CLAIM = Claim("webhook", "team/rl/aa11", "broken", NOW)
MUTE = {"setup": SETUP, "until": LATER.isoformat(), "who": "mia", "at": NOW.isoformat()}
FULL = State(
    project="team/rl",
    written_at=NOW,
    runs=3,
    counts={"broken": 1, "healthy": 2},
    ranges=(
        setup_range(
            df=float("inf"),
            last_run=NOW,
            moved=1.4,
            moved_since=LATER,
            note="moved",
            believed=False,
            ppo_kl_noise=4e-4,
        ),
        setup_range(setup="empty", n=0, center=None, low=None, high=None, sigma=None, df=None),
    ),
    labels=(Label("team/rl/aa11", "healthy", "seen </script>|**x**\u202e", "mia", NOW),),
    accepts=(Accept(SETUP, "new image", "mia", NOW),),
    mutes=(Mute(SETUP, LATER, "mia", NOW),),
    retractions=(Retraction("label", "team/rl/bb22", NOW),),
    alerted=(ALERT,),
    report="VmlldzoxMQ==",
    written={"tables": "a1", "report": "b2"},
)


def store(*said, alerted=()):
    """Return a store in memory with one judged run and what people said."""
    opened = Store.open(NOWHERE, mode="copy")
    opened.sources.save_readings(SERVER, [from_server("aa11")], now=NOW)
    run = judged(run="team/rl/aa11", verdict="broken", setup=SETUP)
    opened.verdicts.save([run], [setup_range(), setup_range(setup="elsewhere")], now=NOW)
    for item in said:
        opened.people.retract(item) if isinstance(item, Retraction) else opened.people.save(item)
    opened.outbox.restore(alerted)
    return opened


def written(state):
    return json.dumps(state.document(), allow_nan=False)


def edited(**changes):
    return json.dumps({**json.loads(written(FULL)), **changes})


def test_a_state_comes_back_as_it_was_written():
    assert read_state(written(FULL)) == FULL
    assert read_state(written(FULL).encode()) == FULL


@given(
    st.floats(allow_nan=False),
    st.text(st.characters(exclude_categories=["Cs"])),
    st.datetimes(datetime(2000, 1, 1), datetime(2199, 12, 31), timezones=st.just(UTC)),  # noqa: DTZ001 - hypothesis adds the zone
)
def test_any_figure_text_and_time_survives(figure, text, moment):
    item = setup_range(center=figure, setup=text, note=text, moved_since=moment)
    known = replace(FULL, ranges=(item,), labels=(Label(text, "broken", text, text, moment),))
    assert read_state(written(known)) == known


def test_a_state_that_says_less_of_its_ranges_is_read():
    [known] = json.loads(written(FULL))["ranges"][:1]
    for name in ("believed", "ppo_kl_noise", "note"):
        del known[name]
    [found] = read_state(edited(ranges=[known])).ranges
    assert found == replace(FULL.ranges[0], believed=True, ppo_kl_noise=None, note="")


def test_what_a_later_program_adds_is_left_aside():
    changed = edited(novelty=[1], ranges=[{**json.loads(written(FULL))["ranges"][0], "more": 1}])
    assert read_state(changed).ranges == FULL.ranges[:1]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "is not JSON"),
        ("{", "is not JSON"),
        ("[" * 100_000, "is not JSON"),
        ("[]", "has another form"),
        ("null", "has another form"),
        ('{"schema": "step0/runs/1"}', "has another form"),
        ('{"schema": "step0/state/x"}', "has another form"),
        ('{"schema": "step0/state/1"}', "damaged: project"),
        (edited(ranges=[{"setup": "a"}]), "damaged: ranges.0.profile"),
        (
            edited(
                labels=[{"run": "r", "label": "fine", "why": "", "who": "", "at": "2026-01-01T00:00:00Z"}]
            ),
            "label",
        ),
        (edited(written_at="2026-01-01T00:00:00"), "damaged: written_at"),
        (
            edited(mutes=[{**MUTE, "until": "2026-01-01T00:00:00"}]),
            "damaged: mutes.0: .*has no time zone",
        ),
        (edited(alerted=[{**ALERT, "channel": "a pigeon"}]), "damaged: alerted.0.channel"),
        (edited(runs=-1), "damaged: runs"),
    ],
)
def test_a_damaged_state_is_told_with_its_place(text, says):
    with pytest.raises(DamagedStateError, match=says) as caught:
        read_state(text)
    assert "\n" not in caught.value.message
    assert len(caught.value.message) < 300


def test_the_state_of_a_later_version_is_left_alone():
    with pytest.raises(NewerStateError, match=r"later step0-wandb \(version 3, known is 2\)"):
        read_state(edited(schema="step0/state/3", labels="a new form"))


def test_the_fingerprint_is_that_of_the_content_not_of_the_moment():
    later = replace(FULL, written_at=LATER, written={"tables": "c3"}, writer="w", claims=(CLAIM,))
    assert later.fingerprint() == FULL.fingerprint()
    others = [
        replace(FULL, labels=()),
        replace(FULL, retractions=()),
        replace(FULL, ranges=(setup_range(n=18),)),
        replace(FULL, alerted=()),
    ]
    assert len({FULL.fingerprint(), *(other.fingerprint() for other in others)}) == 5


def test_a_fingerprint_does_not_hear_the_last_bits_of_a_float():
    assert fingerprint([0.1 + 0.2]) == fingerprint([0.3])
    assert fingerprint([0.3000001]) != fingerprint([0.3])
    assert fingerprint({"a": [1, None, "x"]}) == fingerprint({"a": (1, None, "x")})


def test_what_one_store_knows_another_one_takes_over():
    first = store(
        Label("team/rl/aa11", "healthy", "checked", "mia", NOW),
        Accept(SETUP, "new image", "mia", NOW),
        Mute(SETUP, LATER, "mia", NOW),
        Retraction("label", "team/rl/bb22", NOW),
        alerted=[ALERT],
    )
    runs = first.verdicts.runs()
    travelling = read_state(written(export_state(first, ProjectScope("team/rl"), runs, now=NOW)))
    second = Store.open(NOWHERE, mode="copy")
    merge_state(second, ProjectScope("team/rl"), travelling, now=NOW)
    merge_state(second, ProjectScope("team/rl"), travelling, now=NOW)
    for what in ("labels", "accepts", "mutes", "retractions"):
        assert getattr(second.people, what)() == getattr(first.people, what)() != {}
    assert second.outbox.sent() == first.outbox.sent() == [ALERT]
    assert travelling.ranges == (setup_range(),)
    assert (travelling.runs, travelling.counts) == (1, {"broken": 1})


@pytest.mark.parametrize(("at", "kept"), [(NOW, "new"), (LATER + timedelta(hours=1), "old")])
def test_of_two_words_on_the_same_thing_the_later_one_stays(at, kept):
    known = store(
        Label("team/rl/aa11", "broken", "old", "leo", at),
        Accept(SETUP, "old", "leo", at),
        Mute(SETUP, at + timedelta(days=9), "old", at),
    )
    news = replace(
        FULL,
        labels=(Label("team/rl/aa11", "healthy", "new", "mia", LATER),),
        accepts=(Accept(SETUP, "new", "mia", LATER),),
        mutes=(Mute(SETUP, LATER + timedelta(days=1), "new", LATER),),
    )
    merge_state(known, ProjectScope("team/rl"), news, now=LATER)
    assert known.people.labels()["team/rl/aa11"].why == kept
    assert known.people.accepts()[SETUP].why == kept
    assert known.people.mutes()[SETUP].who == kept


EARLIER = NOW - timedelta(hours=1)


@pytest.mark.parametrize(
    ("said", "taken_back", "kept"), [(EARLIER, NOW, False), (NOW, NOW, False), (LATER, NOW, True)]
)
@pytest.mark.parametrize("mine", ["word", "retraction"])
def test_what_one_store_took_back_no_other_brings_back_unless_it_was_said_again(mine, said, taken_back, kept):
    words = (
        Label("team/rl/aa11", "healthy", "why", "mia", said),
        Mute(SETUP, LATER + timedelta(days=9), "mia", said),
    )
    retractions = (Retraction("label", "team/rl/aa11", taken_back), Retraction("mute", SETUP, taken_back))
    first, second = (store(*words), store(*retractions))[:: 1 if mine == "word" else -1]
    travelling = export_state(second, ProjectScope("team/rl"), second.verdicts.runs(), now=NOW)
    merge_state(first, ProjectScope("team/rl"), travelling, now=NOW)
    assert (list(first.people.labels()), list(first.people.mutes())) == (
        ["team/rl/aa11"] * kept,
        [SETUP] * kept,
    )
    assert first.people.retractions() == retractions


def test_a_tag_speaks_on_whatever_was_taken_back_in_a_shell():
    known = store(Label("team/rl/aa11", "broken", "", BY_TAG, EARLIER))
    assert not known.people.retract(Retraction("label", "team/rl/aa11", NOW))
    assert known.people.labels()["team/rl/aa11"].who == BY_TAG


def test_a_word_from_the_shell_beats_a_tag_and_a_tag_does_not_travel():
    known = store(Label("team/rl/aa11", "broken", "", BY_TAG, LATER))
    assert export_state(known, ProjectScope("team/rl"), known.verdicts.runs(), now=NOW).labels == ()
    merge_state(known, ProjectScope("team/rl"), FULL, now=NOW)
    assert known.people.labels()["team/rl/aa11"].label == "healthy"


def test_a_mute_that_is_over_is_not_taken_over():
    known = store()
    merge_state(known, ProjectScope("team/rl"), FULL, now=LATER)
    assert known.people.mutes() == {}


@pytest.mark.parametrize(
    ("share", "mine"),
    [
        (ProjectScope("team/rl", others=frozenset({"team/sft"}), takes_rest=True), "rl disk"),
        (ProjectScope("team/sft", others=frozenset({"team/rl"})), "sft"),
        (
            ProjectScope("team/health", others=frozenset({"team/rl", "team/sft"}), everything=True),
            "rl sft disk",
        ),
    ],
)
def test_a_project_gets_the_words_on_its_own_runs_and_the_first_one_those_on_runs_of_no_project(share, mine):
    keys = {"rl": "team/rl/aa11", "sft": "team/sft/bb22", "disk": "_/rl/cc33"}
    words = [Label(key, "broken", "why", "mia", NOW) for key in keys.values()]
    alerts = [{**ALERT, "subject": key} for key in keys.values()]
    known = store(*words, alerted=alerts)
    found = export_state(known, share, [], now=NOW)
    wanted = {keys[name] for name in mine.split()}
    assert {label.run for label in found.labels} == wanted
    assert {item["subject"] for item in found.alerted} == wanted


def test_a_setup_goes_where_its_runs_are():
    accepts = [Accept(setup, "", "mia", NOW) for setup in (SETUP, "elsewhere", "gone")]
    known = store(*accepts)
    runs = known.verdicts.runs()
    first = export_state(known, ProjectScope("team/rl", takes_rest=True), runs, now=NOW)
    other = export_state(known, ProjectScope("team/sft", others=frozenset({"team/rl"})), [], now=NOW)
    assert [item.setup for item in first.ranges] == [SETUP]
    assert {item.setup for item in first.accepts} == {SETUP, "gone"}
    assert other.accepts == other.ranges == ()


def test_a_state_is_small():
    many = replace(FULL, ranges=FULL.ranges[:1] * 100, alerted=(ALERT,) * 1000)
    assert len(written(many)) < 200_000


def test_times_are_utc_whatever_zone_they_were_written_in():
    text = edited(written_at="2026-11-01T16:30:00+08:00")
    assert read_state(text).written_at == datetime(2026, 11, 1, 8, 30, tzinfo=UTC)
    assert read_state(text).written_at.utcoffset() == timedelta(0)
