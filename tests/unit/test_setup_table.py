"""What `ranges` says of setups: one word where a level is not simply that of its runs, and what to mend."""

import pytest

from step0_wandb.cli import tables
from step0_wandb.cli.ranges import splitting_note
from tests.support.judged import setup_range


@pytest.mark.parametrize(
    ("about", "said"),
    [
        ({}, "own"),
        ({"moved": 1.5}, "own, moved"),
        ({"moved": 0.67}, "own, improved"),
        ({"accepted": True}, "own, accepted"),
        ({"believed": False}, "own, not believed"),
    ],
)
def test_the_basis_says_in_a_word_what_is_special_about_a_level(about, said):
    [basis] = [column for column in tables.SETUPS if column.heading == "basis" and column.since]
    assert basis.cell(setup_range(**about)) == said


@pytest.mark.parametrize(
    ("profiles", "table"), [(["miles"], "setup.miles"), (["miles", "verl"], "setup.PROFILE")]
)
def test_the_note_on_a_key_that_splits_setups_names_the_table_of_its_profile(profiles, table):
    setups = [
        setup_range(setup=f"{profile} · Qwen3-0.6B · cp={at}", profile=profile, n=1)
        for profile in profiles
        for at in range(4)
    ]
    assert f'cp: if it does not change the gap, drop it with `[{table}] drop = ["cp"]`' in splitting_note(
        setups
    )
