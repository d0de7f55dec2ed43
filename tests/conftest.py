"""How much is tested, and how time passes: the default fits a change, ``--full-grid`` a release."""

import os
import shutil
import signal
from datetime import UTC, datetime
from functools import partial

import pytest
from filelock import FileLock
from hypothesis import settings

from step0_wandb.demo import write_demo
from step0_wandb.wandb_api import rate_limit
from step0_wandb.wandb_api.download import Download
from tests.support.waiting import skipping_clock

settings.register_profile("default", max_examples=50, deadline=None)
settings.register_profile("full", max_examples=500, deadline=None)


def pytest_addoption(parser):
    parser.addoption(
        "--full-grid",
        action="store_true",
        help="Run every kill point and fault, and ten times the generated examples; takes an hour.",
    )


def pytest_configure(config):
    # A job in the background of a shell ignores SIGINT, and so would every program that a test interrupts.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    settings.load_profile("full" if config.getoption("--full-grid") else "default")


def pytest_collection_modifyitems(config, items):
    """Leave out the tests marked ``full_grid``, each of which repeats another one at one more point."""
    if config.getoption("--full-grid"):
        return
    left_out = [item for item in items if item.get_closest_marker("full_grid")]
    config.hook.pytest_deselected(items=left_out)
    items[:] = [item for item in items if not item.get_closest_marker("full_grid")]


@pytest.fixture(scope="session", autouse=True)
def _nobody_waits_for_a_retry():
    """Let the time between two requests pass at once, as far as they are sent from this process."""
    clock = skipping_clock()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rate_limit, "RateLimiter", partial(rate_limit.RateLimiter, clock=clock))
        patch.setattr(Download.__init__, "__defaults__", ((), clock.sleep))
        yield


@pytest.fixture(scope="session")
def fresh_demo(tmp_path_factory):
    """Return a function that gives a copy of the demo, whose runs the client wrote once for all workers."""
    root = tmp_path_factory.getbasetemp()
    shared = root.parent if "PYTEST_XDIST_WORKER" in os.environ else root
    with FileLock(shared / "demo.lock"):
        if not (shared / "step0-demo").exists():
            write_demo(shared / "new-demo", now=datetime.now(UTC))
            (shared / "new-demo").rename(shared / "step0-demo")

    def copy(name):
        target = tmp_path_factory.mktemp(name) / "step0-demo"
        return shutil.copytree(shared / "step0-demo", target, symlinks=True)

    return copy
