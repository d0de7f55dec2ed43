"""Machines that sync one project at the same moment; ``tests.benchmarks.several_machines`` is the long form."""

from tests.support.machines import Machines


def test_two_machines_at_the_same_moment_keep_every_label_and_send_everything_once(tmp_path):
    with Machines(tmp_path, 2) as machines:
        machines.sync_at_once()
        machines.say(0)
        machines.sync_at_once()
        machines.settle()
        assert machines.faults() == []
