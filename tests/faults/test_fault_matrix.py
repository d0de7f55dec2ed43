"""Every fault on every kind of request, once and for ever: exit code, what was told, and what is there.

The default plays the faults on what a sync reads and on its alerts; ``--full-grid`` also on all that it
writes to W&B. ``--log-cli-level=info`` shows the outcomes.
"""

from __future__ import annotations

import logging
import re
import time

import pytest

from tests.support.command import run
from tests.support.project import add_project, environment
from tests.support.wandb_server import ENDLESS, FINAL, KINDS, Faults, WandbServer

LOG = logging.getLogger(__name__)
READING = ("Step0Page", "Step0Alert")
WRITING = (
    "Step0State",
    "Step0Reports",
    "Step0NewReport",
    "upsertView",
    "UpsertBucket",
    "CreateArtifact",
    "CreateArtifactFiles",
    "CommitArtifact",
)
SETTINGS = '[server]\ngive_up = "{give_up}"\n[alerts]\nsince = "9999d"\n[report]\n{report}'
RUNS = 9
BROKEN = {"rl-bad", "rl-long"}
CODES = {0, 4, 5, 7}
"""Done, no access, server out of reach, partly done: nothing else can come of a fault."""
HARMLESS = {"wrong-type", "partial-history"}
"""What is taken as it is, or by asking again: a page without histories is read run by run."""
SLOW = {"hang", "slow", "slow-close"}


def grid():
    """Yield every cell; those that only ``--full-grid`` runs are marked."""
    for asked in (*READING, *WRITING):
        for at, kind in enumerate(sorted(KINDS)):
            for times in ("once", "for ever"):
                is_short = asked in READING and (
                    times == "for ever" or (asked == "Step0Page" and at % 4 == 0)
                )
                marks = [] if is_short else [pytest.mark.full_grid]
                yield pytest.param(asked, kind, times, marks=marks, id=f"{asked}-{kind}-{times}")


@pytest.fixture(scope="module")
def server():
    with WandbServer() as server:
        add_project(server)
        yield server


@pytest.mark.parametrize(("asked", "kind", "times"), list(grid()))
def test_a_fault_costs_what_it_hits_and_no_more(server, tmp_path, asked, kind, times):
    report = "state = false\n" if asked in READING else 'wandb = "same"\n'
    give_up = "1s" if kind in SLOW else "20s"
    (tmp_path / "step0.toml").write_text(
        'sources = ["lab/rl"]\n' + SETTINGS.format(give_up=give_up, report=report)
    )
    server.alerts.clear()
    server.state.views.clear()
    server.state.collections.clear()
    server.faults = Faults(hang_s=1.5, drip_s=0.1, retry_after_s=1)

    def is_asked(request):
        return asked in request.operations

    server.faults.next(kind, times=1 if times == "once" else float("inf"), match=is_asked)
    began = time.monotonic()
    first = run("sync", "--json", cwd=tmp_path, **environment(server, tmp_path))
    seconds = time.monotonic() - began
    alerted = [alert.run_id for alert in server.alerts]
    LOG.info(
        "%s | %s | %s | exit %s | %.1f s | %s alerts", asked, kind, times, first.code, seconds, len(alerted)
    )

    assert first.code in CODES, first.err
    assert "Traceback" not in first.err
    assert len(alerted) == len(set(alerted))
    is_final = kind in FINAL - ENDLESS - {"400"}
    if asked == "Step0Page" and kind not in HARMLESS and (times == "for ever" or is_final):
        assert first.code in {4, 5}, first.err
        assert alerted == []
    elif asked == "Step0Page":
        assert first.code == 0, first.err
        assert sum(first.document["counts"].values()) == RUNS
    if asked != "Step0Page":
        assert sum(first.document["counts"].values()) == RUNS  # what was read is stored and judged

    server.faults.clear()
    second = run("sync", "--json", cwd=tmp_path, **environment(server, tmp_path))
    assert second.code == 0, second.err
    # What a server refuses on a run is raised on the sync's own run, with a link to that run.
    assert sorted(re.search(r"/runs/([\w-]+)", alert.text)[1] for alert in server.alerts) == sorted(BROKEN)
    if report != "state = false\n":
        assert len(server.state.views) == 1
