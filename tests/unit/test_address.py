"""What people type as a source, and what it means."""

from __future__ import annotations

from pathlib import Path

import pytest

from step0_wandb.errors import UsageError
from step0_wandb.wandb_api.address import LocalAddress, RemoteAddress, parse_address, safe_text
from step0_wandb.wandb_api.credentials import Server

CLOUD = Server("https://api.example.com", "https://app.example.com", "WANDB_BASE_URL")
BELOW_A_PATH = Server("https://api.example.com", "https://app.example.com/wandb", "WANDB_BASE_URL")
PROJECT = RemoteAddress("team", "project")
RUN = RemoteAddress("team", "project", "7f3a")


def nothing_exists(_path: Path) -> bool:
    return False


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("team/project", PROJECT),
        ("team/project/", PROJECT),
        ("team/project/7f3a", RUN),
        ("team/project/runs/7f3a", RUN),
        ("wandb:team/project/7f3a", RUN),
        ("team/project/run.with-dots_1", RemoteAddress("team", "project", "run.with-dots_1")),
        ("https://app.example.com/team/project", PROJECT),
        ("https://app.example.com/team/project/", PROJECT),
        ("https://app.example.com/team/project?nw=nwuserada", PROJECT),
        ("https://app.example.com/team/project/workspace?workspace=user-ada", PROJECT),
        ("https://app.example.com/team/project/table", PROJECT),
        ("https://app.example.com/team/project/groups/g-1/workspace", PROJECT),
        ("https://app.example.com/team/project/reports/Weekly--Vmlldzo1", PROJECT),
        ("https://app.example.com/team/project/runs", PROJECT),
        ("https://app.example.com/team/project/runs/7f3a", RUN),
        ("https://app.example.com/team/project/runs/7f3a/overview", RUN),
        ("https://app.example.com/team/project/runs/7f3a/files/output.log", RUN),
        ("https://app.example.com/team/my%20project/runs/a%2Fb", RemoteAddress("team", "my project", "a/b")),
        ("https://api.example.com/team/project/runs/7f3a", RUN),
        ("https://app.example.com/runs/runs/runs/7f3a", RemoteAddress("runs", "runs", "7f3a")),
        ("wandb:https://app.example.com/team/project", PROJECT),
    ],
)
def test_projects_and_runs_on_a_server_are_read_from_all_forms(text, address):
    assert parse_address(text, server=lambda: CLOUD, exists=nothing_exists) == address


@pytest.mark.parametrize("page", ["", "/runs/7f3a", "/workspace"])
def test_a_page_below_a_path_of_the_server_is_found(page):
    url = f"https://app.example.com/wandb/team/project{page}"
    expected = RUN if "7f3a" in page else PROJECT
    assert parse_address(url, server=lambda: BELOW_A_PATH, exists=nothing_exists) == expected


def test_the_url_of_a_run_is_read_without_a_server_too():
    assert parse_address("https://anywhere.example.org/wandb/team/project/runs/7f3a") == RUN


def test_an_address_is_written_as_people_write_it():
    assert [str(PROJECT), str(RUN)] == ["team/project", "team/project/7f3a"]


def test_a_path_that_exists_is_a_path_even_if_it_looks_like_a_project(tmp_path, monkeypatch):
    (tmp_path / "team" / "project").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    assert parse_address("team/project") == LocalAddress(Path("team/project"))
    assert parse_address("wandb:team/project") == PROJECT
    assert parse_address("file:team/project") == LocalAddress(Path("team/project"))


@pytest.mark.parametrize(
    "text",
    ["./wandb", "../x/y", "/data/wandb", "~/wandb", "run-7f3a.wandb", "logs/train.log", "file:team/project"],
)
def test_a_path_that_does_not_exist_is_named(text):
    with pytest.raises(UsageError, match="does not exist") as caught:
        parse_address(text, exists=nothing_exists)
    assert Path(text.removeprefix("file:")).name in caught.value.message


@pytest.mark.parametrize(
    "text",
    [
        "",
        "project",
        "a/b/c/d",
        "team//project",
        "/",
        "wandb:",
        "wandb:project",
        "https://app.example.com/",
        "https://app.example.com/team",
    ],
)
def test_what_is_neither_a_path_nor_a_project_is_refused_with_the_forms_there_are(text):
    with pytest.raises(UsageError) as caught:
        parse_address(text, server=lambda: CLOUD, exists=nothing_exists)
    assert str(caught.value)


@pytest.mark.parametrize(
    "text", ["x" * 300, "/" + "x" * 300, "~no-such-user/wandb", "https://[::1", "wandb:https://[x]"]
)
def test_what_no_path_and_no_url_can_be_is_a_usage_error(text):
    with pytest.raises(UsageError):
        parse_address(text, server=lambda: CLOUD)


@pytest.mark.parametrize(
    "url",
    [
        "https://evil.example.org/team/project",
        "https://app.example.com.evil.org/team/project",
        "https://app.example.com:8443/team/project",
        "https://app.example.com@evil.org/team/project",
    ],
)
def test_a_url_on_another_server_is_refused_for_the_key_belongs_to_this_one(url):
    with pytest.raises(UsageError, match="not on the W&B server in use"):
        parse_address(url, server=lambda: CLOUD)


@pytest.mark.parametrize(
    "url",
    [
        "https://ada:geheim@app.example.com/team/project/runs/7f3a/and/on",
        "https://ada:geheim@evil.example.org/team/project",
        "https://evil.example.org/team/project?token=geheim",
        "https://evil.example.org/team/project#geheim",
        "https://ada:geheim@[::1/team/project",
        "https://ada:geh/geheim@app.example.com/team",
        "wandb:https://ada:geheim@app.example.com/team",
        "ftp://ada:geheim@app.example.com",
    ],
)
def test_a_password_in_a_url_is_never_repeated(url):
    assert "geheim" not in safe_text(url)
    with pytest.raises(UsageError) as caught:
        parse_address(url, server=lambda: CLOUD, exists=nothing_exists)
    assert "geheim" not in str(caught.value)


def test_texts_that_are_no_urls_are_shown_as_they_are():
    assert [safe_text(text) for text in ("team/project", "./wandb?", "a@b/c")] == [
        "team/project",
        "./wandb?",
        "a@b/c",
    ]
