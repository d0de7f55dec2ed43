"""Keys of sixty kinds in everything that a run says: none is in the store, a text, a page or a file that leaves."""

import logging
import sqlite3
from contextlib import closing

import pytest

from step0_wandb.store import Label, Store
from tests.support import stored
from tests.support.command import run
from tests.support.project import GAPS, NOW, Lab, add_miles, environment
from tests.support.secrets import CONTEXTS, core, tokens
from tests.support.server_source import CONFIG, miles_rows
from tests.support.wandb_server import WandbServer
from tests.support.webhook import Hook

TOKENS = tokens()
PASTED = "https://ada:hunter2-and-more@wandb.example.com/lab/rl"


def add_talker(server, number, token):
    """Put a broken run on the server that says a key wherever a run can say something."""
    config = {f"c{at}": context(token) for at, context in enumerate(CONTEXTS.values())}
    name = f"try {token}" if "\n" not in token else "try"
    server.add_run(
        "lab", "rl", f"talk{number}", config=CONFIG | config, rows=miles_rows(gap=0.046), name=name,
        group=f"g {token}", tags=[token], job_type=f"train {token}", created_at=NOW, state="running",
    )  # fmt: skip


@pytest.fixture(scope="module")
def told(tmp_path_factory):
    """Return a project of such runs that was synced with everything on, its webhook, and what was logged."""
    folder = tmp_path_factory.mktemp("secrets")
    lines = []
    with WandbServer() as server, Hook() as hook, pytest.MonkeyPatch.context() as patch:
        server.clock = lambda: NOW
        for name, value in (environment(server, folder) | {"HOOK": hook.url}).items():
            patch.setenv(name, value)
        for at, gap in enumerate(GAPS):
            add_miles(server, f"ok{at}", gap, hours=48 - at)
        for number, token in enumerate(TOKENS.values()):
            add_talker(server, number, token)
        lab = Lab(server, folder, **{"alerts.webhook_env": "HOOK", "report.html": str(folder / "page.html")})
        handler = logging.Handler()
        handler.emit = lambda record: lines.append(record.getMessage())
        logging.getLogger().addHandler(handler)
        try:
            result = lab.sync()
        finally:
            logging.getLogger().removeHandler(handler)
        with lab.store("write") as store:
            for number, token in enumerate(TOKENS.values()):
                store.people.save(Label(f"lab/rl/talk{number}", "broken", f"as {token} says", "ada", NOW))
        assert not result.problems
        lab.hook, lab.result, lab.lines = hook, result, lines
        lab.sync()
        yield lab


def left_in(*texts):
    """Return the kinds of keys that show in any of some texts."""
    text = "\n".join(texts)
    return [kind for kind, token in TOKENS.items() if core(kind, token) in text]


def test_none_is_in_the_store(told):
    with told.store() as store:
        kept = [repr(record) for record in store.runs.records()]
        kept += [repr(store.verdicts.runs()), repr(store.people.labels()), repr(store.outbox.unsent())]
    assert len(kept) > 64
    assert left_in(*kept) == []
    dump = (told.folder / "step0.db").read_bytes()
    with closing(sqlite3.connect(told.folder / "step0.db")) as database:
        assert left_in(*database.iterdump(), dump.decode("latin-1")) == []


def test_none_is_in_what_people_get(told):
    alerts = [f"{alert.title} {alert.text}" for alert in told.server.alerts]
    assert alerts
    assert told.hook.texts
    assert left_in(*alerts, *told.hook.texts) == []


def test_none_is_in_what_is_written_to_wandb_and_to_disk(told):
    own = told.server.run("lab", "rl", "step0-sync")
    files = [file.content.decode("latin-1") for file in own.files.values() if file.content]
    page = (told.folder / "page.html").read_text(encoding="utf-8")
    reports = [report.spec for report in told.reports]
    assert reports
    assert left_in(*files, page, *reports, told.state().decode(), *told.lines) == []


@pytest.mark.parametrize("json_too", [False, True])
def test_none_is_in_what_a_command_prints(told, json_too):
    extra = ["--json"] * json_too
    store = ("--store", told.folder / "step0.db")
    answers = [run(command, *store, *extra, cwd=told.folder) for command in ("runs", "ranges", "weights")]
    some = range(0, len(TOKENS), 9)
    answers += [run("explain", f"talk{number}", *store, *extra, cwd=told.folder) for number in some]
    assert all(answer.code == 0 for answer in answers)
    assert left_in(*(answer.out + answer.err for answer in answers)) == []


@pytest.mark.parametrize(
    "words",
    [
        ["sync", PASTED], ["sync", PASTED, "--json"], ["check", f"{PASTED}/runs/a"], ["gate", f"{PASTED}/runs/a"],
        ["doctor", PASTED], ["doctor", PASTED, "--json"], ["sync", PASTED.replace("rl", "")],
        ["sync", PASTED.replace("https", "ftp")], ["check", "/nowhere/hunter2@x:hunter2-and-more@y"],
        ["explain", PASTED], ["label", PASTED, "broken", "--why", "x"],
    ],
)  # fmt: skip
def test_a_password_in_a_pasted_address_is_never_echoed(tmp_path, words):
    answer = run(*words, cwd=tmp_path, WANDB_API_KEY="0" * 40, WANDB_BASE_URL="http://127.0.0.1:9")
    assert answer.code in (2, 4, 5, 6)
    if "nowhere" not in words[1]:
        assert "hunter2" not in answer.out + answer.err


def test_a_source_of_the_settings_that_holds_a_password_is_refused_without_telling_it(tmp_path):
    (tmp_path / "step0.toml").write_text(f'sources = ["{PASTED}"]\n')
    answer = run("settings", cwd=tmp_path)
    assert answer.code == 2
    assert "sources contains what looks like a secret" in answer.err
    assert "hunter2" not in answer.out + answer.err


# ── stores of earlier versions ──────────────────────────────────────────────


@pytest.fixture
def old(tmp_path, monkeypatch):
    """Return a store in which another set of rules has let everything through."""
    path = tmp_path / "step0.db"
    with monkeypatch.context() as blind:
        for place in ("step0_wandb.store.scrub", "step0_wandb.store.people"):
            blind.setattr(f"{place}.redact", str)
        blind.setattr("step0_wandb.store.scrub.rules_version", lambda: "older")
        with Store.open(path, mode="write") as store:
            items = [
                stored.from_server(f"r{at}", config=stored.record().config | {"note": f"x {token}", "n": at})
                for at, token in enumerate(TOKENS.values())
            ]
            store.sources.save_readings(stored.SERVER, items, now=NOW)
            store.people.save(Label("team/rl/r1", "broken", f"as {TOKENS['jwt']} says", "ada", NOW))
    assert left_in(*configs(path, redacted=False))
    return path


def configs(path, *, redacted=True):
    with closing(sqlite3.connect(path)) as database:
        whole = database.execute("select group_concat(why) from labels").fetchone()[0]
    if not redacted:
        return [whole]
    with Store.open(path, mode="read") as store:
        return [whole, *(repr(record) for record in store.runs.records())]


def test_an_old_store_is_scrubbed_when_it_is_opened_to_write(old):
    with Store.open(old, mode="write") as store:
        records = {record.run_id: record for record in store.runs.records()}
    assert len(records) == len(TOKENS)
    assert left_in(*configs(old), repr(records)) == []
    assert records["r5"].config["n"] == 5
    with closing(sqlite3.connect(old)) as database:
        assert database.execute("pragma integrity_check").fetchone() == ("ok",)
        used = {row[0] for row in database.execute("select config_template from runs")}
        assert used == {row[0] for row in database.execute("select id from templates where kind = 'config'")}


def test_an_old_store_that_is_only_read_stays_as_it_is_and_shows_none(old):
    before = old.read_bytes()
    with Store.open(old, mode="read") as store:
        assert left_in(*(repr(record) for record in store.runs.records())) == []
    assert old.read_bytes() == before


def test_a_store_is_scrubbed_once_for_a_set_of_rules(old, monkeypatch):
    Store.open(old, mode="write").close()
    monkeypatch.setattr("step0_wandb.store.scrub.scrub", lambda _config: pytest.fail("scrubbed again"))
    Store.open(old, mode="write").close()
    Store.open(old, mode="read").close()
