"""The packages of a flagged run against its nearest healthy peer: from disk, from a server, or why not."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from step0_wandb.app.check import explain_run
from step0_wandb.app.sync import Job, run_sync
from step0_wandb.errors import SourceError
from step0_wandb.settings.load import load_settings
from step0_wandb.wandb_api.credentials import Account, Server
from step0_wandb.wandb_api.download import Download
from step0_wandb.wandb_api.faults import RequestFailed
from step0_wandb.wandb_api.http import HttpLimits, HttpTransport, Reply
from tests.support.command import run
from tests.support.miles import CONFIG, GAP, miles_run
from tests.support.runs import exit_record, history_record, run_record, wandb_file, write_file
from tests.support.server_source import miles_rows
from tests.support.wandb_server import WandbServer

NOW = datetime(2026, 1, 10, tzinfo=UTC)
OLD = "aiohttp==3.12\nsglang==0.5.9\ntorch==2.9.1\n"
NEW = "aiohttp==3.13\nsglang==0.5.16\ntorch==2.9.1\n"
CHANGED = ("sglang 0.5.9 -> 0.5.16", "aiohttp 3.12 -> 3.13")


def install(directory: Path, text: str | bytes) -> None:
    (directory / "files").mkdir(exist_ok=True)
    (directory / "files" / "requirements.txt").write_bytes(text.encode() if isinstance(text, str) else text)


def job(folder, *sources, **flags):
    flags = {"store": str(folder / "step0.db"), "report.state": False, "server.give_up": "5s", **flags}
    loaded = load_settings(cwd=folder, environ={}, flags=flags)
    return Job(loaded, sources=sources, clock=lambda: NOW)


def explained(folder, run_id="bad", source=None):
    task = job(folder, source or str(folder))
    run_sync(task)
    return explain_run(run_id, task)


def fleet(folder):
    """Write three healthy runs with the old packages and a broken one, whose directory is returned."""
    for at in range(3):
        install(miles_run(folder, f"ok{at}", 0.0150 + at * 1e-4), OLD)
    return miles_run(folder, "bad", 0.0470)


# --- on disk --------------------------------------------------------------------------------------


def test_the_packages_of_a_flagged_run_are_compared_with_its_nearest_healthy_peer_s(tmp_path):
    install(fleet(tmp_path), NEW)
    found = explained(tmp_path)
    assert (found.packages, found.packages_unknown) == (CHANGED, "")
    assert "installed: sglang 0.5.9 -> 0.5.16" in found.findings


def test_two_images_that_differ_in_many_packages_are_no_finding_but_shown(tmp_path):
    install(fleet(tmp_path), "".join(f"package-{at}==1\n" for at in range(40)))
    found = explained(tmp_path)
    assert len(found.packages) == 43
    assert found.packages[:2] == ("sglang 0.5.9 -> not installed", "torch 2.9.1 -> not installed")
    assert not any("installed" in finding for finding in found.findings)
    assert ", and 35 more (nearest healthy run -> this run)" in " ".join(str(found).split())


def test_equal_packages_are_said_to_be_the_same(tmp_path):
    install(fleet(tmp_path), OLD)
    found = explained(tmp_path)
    assert found.packages == ()
    assert "the same as in the nearest healthy run" in str(found)


def test_a_run_without_a_list_is_explained_and_says_that_packages_could_not_be_compared(tmp_path):
    fleet(tmp_path)
    found = explained(tmp_path)
    assert found.packages is None
    assert found.packages_unknown == "team/project/bad has no requirements.txt next to its files"
    assert "packages could not be compared: team/project/bad has no" in " ".join(str(found).split())


@pytest.mark.parametrize("text", [b"x==1\n" * 300_000, b"\xff\xfe\x00", b"\x1b]0;x\x07==\x1b[2J"])
def test_a_list_that_is_no_list_breaks_nothing(tmp_path, text):
    install(fleet(tmp_path), text)
    found = explained(tmp_path)
    assert found.run.verdict == "broken"
    assert "\x1b" not in str(found)
    assert ("larger than 1 MiB" in found.packages_unknown) is (len(text) > 1 << 20)


def test_a_list_that_may_not_be_read_is_said(tmp_path):
    directory = fleet(tmp_path)
    (directory / "files" / "requirements.txt").mkdir(parents=True)
    assert "requirements.txt: Is a directory" in explained(tmp_path).packages_unknown


def test_a_healthy_run_is_compared_with_nobody(tmp_path):
    install(fleet(tmp_path), NEW)
    found = explained(tmp_path, "ok1")
    assert (found.packages, found.packages_unknown) == (None, "")


def test_of_several_directories_the_one_that_step_0_was_read_from_counts(tmp_path):
    for at in range(3):
        install(miles_run(tmp_path, f"ok{at}", 0.0150 + at * 1e-4), OLD)
    row = {"train/step": 0, "train/ppo_kl": 0.0, "train/pg_clipfrac": 0.0, GAP: 0.047}
    driver = wandb_file(run_record("bad", CONFIG), exit_record(0))
    trainer = wandb_file(run_record("bad", CONFIG, started=1767225630), history_record(row), exit_record(0))
    install(write_file(tmp_path, driver, run_id="bad", stamp="20260101_000000").parent, "sglang==0.1\n")
    last = write_file(tmp_path, trainer, run_id="bad", stamp="20260101_000030").parent
    install(last, NEW)
    assert explained(tmp_path).packages == CHANGED
    (last / "files" / "requirements.txt").unlink()
    assert "sglang 0.5.9 -> 0.1" in explain_run("bad", job(tmp_path)).packages


def test_the_command_shows_them_and_its_document_holds_them(tmp_path):
    install(fleet(tmp_path), NEW)
    run("sync", ".", "--store", "s.db", cwd=tmp_path)
    said = run("explain", "bad", "--store", "s.db", cwd=tmp_path).out
    assert (
        "packages sglang 0.5.9 -> 0.5.16, aiohttp 3.12 -> 3.13 (nearest healthy run -> this run)"
        in " ".join(said.split())
    )
    document = run("explain", "bad", "--json", "--store", "s.db", cwd=tmp_path).document
    assert (tuple(document["packages"]), document["packages_unknown"]) == (CHANGED, None)


def test_a_notebook_shows_them_too(tmp_path, monkeypatch):
    import step0_wandb as s0

    monkeypatch.chdir(tmp_path)
    install(fleet(tmp_path), NEW)
    verdicts = s0.judge(s0.load_runs(tmp_path))
    assert s0.explain(verdicts, "bad").packages == CHANGED


def test_a_setup_that_moved_without_a_change_of_config_names_the_packages_that_changed(tmp_path):
    for at in range(20):
        started = 1767225600 + 3600 * at
        install(miles_run(tmp_path, f"old{at:02}", 0.0120 + at % 5 * 1e-4, started=started), OLD)
    for at in range(4):
        started = 1767225600 + 3600 * (30 + at)
        other = f"aiohttp==3.{20 + at}\nsglang==0.5.16\ntorch==2.9.1\n"
        install(miles_run(tmp_path, f"new{at}", 0.0185 + at * 1e-4, started=started), other)
    [setup] = run_sync(job(tmp_path, str(tmp_path))).setups
    assert setup.note.endswith("accept it if it is right; since then sglang 0.5.9 -> 0.5.16")


# --- on a server ----------------------------------------------------------------------------------


@pytest.fixture
def server(tmp_path, monkeypatch):
    with WandbServer() as server:
        server.clock = lambda: NOW
        for name, value in {"WANDB_BASE_URL": server.url, "WANDB_API_KEY": server.api_key}.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setenv("HOME", str(tmp_path))
        for at in range(4):
            gap = 0.0150 + at * 1e-4 if at else 0.0470
            created_at = NOW - timedelta(hours=9 - at)
            added = server.add_run(
                "lab", "rl", f"r{at}", config=CONFIG, rows=miles_rows(gap=gap), created_at=created_at
            )
            server.state.new_file(added.files, "requirements.txt").content = (OLD if at else NEW).encode()
        yield server


def downloads(server):
    return [request for request in server.requests if request.path.startswith("/storage/")]


def test_lists_are_fetched_from_the_server_of_the_run_in_question_and_its_peer_alone(tmp_path, server):
    task = job(tmp_path, "lab/rl", **{"alerts.levels": []})  # an alert would name the packages too
    run_sync(task)
    assert not downloads(server)
    server.requests.clear()
    assert explain_run("r0", task).packages == CHANGED
    assert [request.path == "/graphql" for request in server.requests] == [True, False] * 2
    assert all(request.authorized for request in server.requests)
    server.requests.clear()
    assert explain_run("r1", task).packages is None
    assert not server.requests


def test_a_run_without_a_list_on_the_server_says_so(tmp_path, server):
    server.run("lab", "rl", "r0").files.clear()
    found = explained(tmp_path, "r0", "lab/rl")
    assert found.packages_unknown == "lab/rl/r0 has no requirements.txt on its server"


@pytest.mark.parametrize(
    ("fault", "says"), [("403", "does not let this key in"), ("html", "not an answer of W&B")]
)
def test_a_server_that_does_not_give_it_is_no_error_of_explain(tmp_path, server, fault, says):
    task = job(tmp_path, "lab/rl")
    run_sync(task)
    server.faults.always(fault)
    found = explain_run("r0", task)
    assert (found.run.verdict, found.packages) == ("broken", None)
    assert says in found.packages_unknown


@pytest.mark.usefixtures("server")
def test_without_a_key_explain_answers_and_says_why_packages_are_missing(tmp_path, monkeypatch):
    task = job(tmp_path, "lab/rl")
    run_sync(task)
    monkeypatch.delenv("WANDB_API_KEY")
    found = explain_run("r0", task)
    assert found.packages is None
    assert found.packages_unknown.startswith("No W&B key was found")


@pytest.mark.usefixtures("server")
def test_a_run_of_another_server_is_not_asked_of_this_one(tmp_path, monkeypatch):
    task = job(tmp_path, "lab/rl")
    run_sync(task)
    with WandbServer() as other:
        monkeypatch.setenv("WANDB_BASE_URL", other.url)
        found = explain_run("r0", task)
        assert not other.requests
    assert "is not on" in found.packages_unknown


# --- where the key goes ---------------------------------------------------------------------------


def download(server, **limits):
    account = Account(Server(server.url, server.url, "a test"), server.api_key, "a test")
    return Download(account, {}, HttpLimits(**limits), sleep=lambda _seconds: None)


def stored(server, content=b"x"):
    """Put a file on a server; return its address."""
    run = server.add_run("lab", "files", f"f{len(server.state.files)}")
    file = server.state.new_file(run.files, "f")
    file.content = content
    return f"{server.url}/storage/{file.token}"


def test_the_key_goes_to_its_own_server_also_for_an_address_without_a_host():
    with WandbServer() as own:
        url = stored(own)
        assert download(own).read(urlsplit(url).path) == download(own).read(url) == b"x"
        assert all(request.authorized for request in own.requests)


def test_a_signed_address_elsewhere_is_read_without_the_key_and_an_unsigned_one_is_not_asked():
    with WandbServer() as own, WandbServer() as other:
        other.backend.api_key = own.api_key  # it would know the key
        url = stored(other)
        assert download(own).read(f"{url}?X-Amz-Signature=abc") == b"x"
        [request] = other.requests
        assert not request.authorized
        other.requests.clear()
        for refused in (
            url,
            f"{url}?signed=no",
            url.replace("http://", "http://u:p@") + "?sig=a",
            "file:///etc/passwd?sig=a",
        ):
            with pytest.raises(SourceError, match="another host"):
                download(own).read(refused)
        assert not other.requests


@pytest.mark.parametrize(
    ("url", "is_read"),
    [
        ("https://bucket.s3.eu-central-1.amazonaws.com/f?X-Amz-Signature=a", True),
        ("https://storage.googleapis.com/bucket/f?X-Goog-Signature=a", True),
        ("https://minio.example.com/f?X-Amz-Signature=a", True),
        ("https://169.254.169.254/latest/meta-data?sig=a", False),
        ("https://evil.example.org/f?X-Amz-Signature=a", False),
        ("https://amazonaws.com.evil.org/f?X-Amz-Signature=a", False),
        ("https://evilamazonaws.com/f?X-Amz-Signature=a", False),
        ("https://localhost/f?sig=a", False),
    ],
)
def test_files_are_read_from_the_servers_own_domain_and_from_object_stores_alone(url, is_read, monkeypatch):
    asked = []
    monkeypatch.setattr(
        HttpTransport, "get", lambda transport: asked.append(transport) or Reply(200, {}, b"x")
    )
    account = Account(
        Server("https://api.wandb.example.com", "https://wandb.example.com", "a test"), "k", "a test"
    )
    files = Download(account, {}, HttpLimits())
    if is_read:
        assert files.read(url) == b"x"
    else:
        with pytest.raises(SourceError, match="not a known file store"):
            files.read(url)
    assert len(asked) == is_read


def test_a_host_that_the_settings_allow_is_a_file_store_too(tmp_path, monkeypatch):
    asked = []
    monkeypatch.setattr(HttpTransport, "get", lambda _transport: asked.append(1) or Reply(200, {}, b"x"))
    (tmp_path / "step0.toml").write_text('[server]\nfile_hosts = ["minio.lab.example.org"]\n')
    context = Job(load_settings(cwd=tmp_path, environ={}), clock=lambda: NOW).context()
    account = Account(Server("https://wandb.corp.net", "https://wandb.corp.net", "a test"), "k", "a test")
    files = Download(account, {}, HttpLimits(), context.file_hosts)
    assert files.read("https://minio.lab.example.org/f?X-Amz-Signature=a") == b"x"
    with pytest.raises(SourceError) as refused:
        files.read("https://other.example.org/f?X-Amz-Signature=a")
    assert "[server] file_hosts" in refused.value.hint
    assert len(asked) == 1


def test_a_list_that_is_too_large_is_not_read_to_its_end():
    with WandbServer() as own:
        url = stored(own, b"x" * (1 << 21))
        with pytest.raises(RequestFailed, match="over 1 MiB"):
            download(own, body_bytes=1 << 20).read(url)
