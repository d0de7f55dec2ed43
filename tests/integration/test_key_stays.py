"""The key goes to the server in a header, and nowhere else."""

import base64
import dataclasses
import importlib
import logging
import pkgutil

import pytest

import step0_wandb
from step0_wandb.publish.wandb.process import Login
from step0_wandb.publish.wandb.project import remote_project
from step0_wandb.sources.server.source import ServerSource
from step0_wandb.store import Store
from step0_wandb.wandb_api.address import RemoteAddress
from step0_wandb.wandb_api.context import Context
from step0_wandb.wandb_api.credentials import Places
from step0_wandb.wandb_api.download import Download
from step0_wandb.wandb_api.http import HttpLimits
from tests.support.command import run
from tests.support.project import NOW, add_miles, environment
from tests.support.server_source import CONFIG, miles_rows, shipped_finder
from tests.support.wandb_server import WandbServer

MODULES = [name for _, name, _ in pkgutil.walk_packages(step0_wandb.__path__, "step0_wandb.")]
PROGRAMS = ("__main__", "publish.sdk", "demo.writer", "store.migrations")
"""What runs when it is imported, or loads the wandb client."""


@pytest.fixture
def server():
    with WandbServer() as server:
        add_miles(server, "ok", 0.0150)
        config = CONFIG | {"wandb_key": server.api_key, "cmd": f"train --key={server.api_key}"}
        server.add_run("lab", "rl", "talks", config=config, rows=miles_rows())
        yield server


def secrets_of(server):
    """Return the key and what the header makes of it."""
    return server.api_key, base64.b64encode(f"api:{server.api_key}".encode()).decode()


def shows(server, text):
    """Return whether a text holds the key in either form."""
    return any(secret in text for secret in secrets_of(server))


def ours(thing, found):
    """Collect all objects of this package that can be reached from one."""
    if id(thing) in found or not type(thing).__module__.startswith("step0_wandb"):
        return found
    found[id(thing)] = thing
    slots = [name for kind in type(thing).__mro__ for name in getattr(kind, "__slots__", ())]
    for name in {*getattr(thing, "__dict__", ()), *slots}:
        ours(getattr(thing, name, None), found)
    return found


def _is_record(thing):
    return isinstance(thing, type) and dataclasses.is_dataclass(thing)


def test_no_record_shows_the_environment_that_it_holds():
    started = tuple(f"step0_wandb.{name}" for name in PROGRAMS)
    modules = [importlib.import_module(name) for name in MODULES if not name.startswith(started)]
    records = {kind for module in modules for kind in vars(module).values() if _is_record(kind)}
    held = [(kind, part) for kind in records for part in dataclasses.fields(kind) if part.name == "environ"]
    assert {kind.__name__ for kind, _ in held} >= {"Places", "Download", "RemoteProject"}
    assert [kind for kind, part in held if part.repr] == []


def test_nothing_that_can_reach_the_key_shows_it(server, tmp_path):
    environ = environment(server, tmp_path)
    context = Context(Places.of(environ), lambda: NOW)
    address = RemoteAddress("lab", "rl")
    remote = remote_project(address, context)
    source = ServerSource(address, context.client(), shipped_finder(), clock=lambda: NOW)
    login = Login(server.url, server.api_key)
    reached = {}
    for thing in (context, remote, source, login, Download(remote.account, environ, HttpLimits())):
        ours(thing, reached)
    kinds = {type(thing).__name__ for thing in reached.values()}
    assert kinds >= {
        "Places",
        "Account",
        "GraphQLClient",
        "HttpTransport",
        "RemoteProject",
        "Download",
        "Login",
    }
    shown = [thing for thing in reached.values() if shows(server, f"{thing!r} {thing}")]
    assert [type(thing).__name__ for thing in shown] == []


@pytest.mark.parametrize("fault", [None, "401", "403", "500", "html", "redirect"])
def test_the_key_is_in_no_log_no_output_and_no_store(server, tmp_path, caplog, fault):
    settings = '[report]\nstate = false\n[server]\ngive_up = "1s"\n'
    (tmp_path / "step0.toml").write_text(settings, encoding="utf-8")
    if fault:
        server.faults.always(fault)
    with caplog.at_level(logging.DEBUG):
        answer = run("sync", "lab/rl", "-v", cwd=tmp_path, **environment(server, tmp_path))
    assert answer.code == {None: 0, "401": 4, "403": 4}.get(fault, 5)
    assert not shows(server, caplog.text + answer.out + answer.err)
    assert all(request.authorized for request in server.requests)
    assert not shows(server, repr(server.requests))
    host = server.url.removeprefix("http://")
    assert {request.headers["host"] for request in server.requests} == {host}
    kept = b"".join(file.read_bytes() for file in tmp_path.iterdir())
    assert not any(secret.encode() in kept for secret in secrets_of(server))
    with Store.open(tmp_path / "step0.db", mode="read") as store:
        runs = list(store.runs.records())
    assert not shows(server, repr(runs))
    assert len(runs) == (0 if fault else 2)
