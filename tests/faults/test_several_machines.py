"""Machines that sync one project at the same moment; ``tests.benchmarks.several_machines`` is the long form."""

import pytest

from step0_wandb.store import Store
from tests.support.machines import Machines


@pytest.mark.parametrize("rounds", [1, pytest.param(2, marks=pytest.mark.full_grid)])
def test_two_machines_at_the_same_moment_keep_every_label_and_send_everything_once(tmp_path, rounds):
    with Machines(tmp_path, 2) as machines:
        for home in machines.homes:
            Store.open(home / "step0.db", mode="write").close()
        for number in range(rounds):
            machines.say(number)
            machines.sync_at_once()
        machines.settle()
        assert machines.faults() == []
