"""Server and key are found where the wandb client finds them; the client itself is the witness."""

from __future__ import annotations

import subprocess
import sys

import pytest
import wandb
from wandb.sdk.lib import wbauth

from step0_wandb.errors import CredentialsError, UsageError
from step0_wandb.wandb_api.credentials import Places, Server, find_account, find_server

KEY, OTHER, THIRD = "a" * 40, "b" * 40, "local-" + "c" * 40
URL = "https://wandb.example.com"


@pytest.fixture
def places(tmp_path):
    """Return a function that makes places with these variables, in empty directories."""
    home, cwd = tmp_path / "home", tmp_path / "cwd"
    home.mkdir()
    cwd.mkdir()

    def make(**environ):
        return Places(environ, home, cwd)

    return make


def write(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def netrc_text(machine, key):
    return f"machine {machine}\n  login user\n  password {key}\n"


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1:8080",
        "http://localhost:8080/",
        "https://wandb.example.com",
        "https://api.example.com",
        "https://example.com/wandb/",
        "https://api.wandb.ai",
        "https://api.wandb.test",
        "https://api.forge.coreweave.com",
        "https://api.qa.forge.coreweave.com",
    ],
)
def test_the_links_lead_where_the_client_says(places, url):
    settings = wandb.Settings(base_url=url)
    server = find_server(places(), url)
    assert (server.base_url, server.app_url) == (settings.base_url, settings.app_url.rstrip("/"))


def test_without_any_setting_the_clients_own_default_is_used(places):
    server = find_server(places())
    assert server.base_url == wandb.Settings.model_fields["base_url"].default
    assert server.app_url == wandb.Settings().app_url
    assert server.origin == "the wandb client's default"


def test_finding_the_default_does_not_import_the_client():
    code = (
        "import sys, pathlib\n"
        "from step0_wandb.wandb_api.credentials import Places, find_server\n"
        "find_server(Places({}, pathlib.Path('/nowhere'), pathlib.Path('/nowhere')))\n"
        "sys.exit('wandb' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_the_base_url_comes_from_argument_then_variable_then_settings_files(places):
    here = places(WANDB_BASE_URL="https://variable.example.com")
    write(here.cwd / "wandb" / "settings", "[default]\nbase_url = https://local.example.com\n")
    write(here.home / ".config" / "wandb" / "settings", "[default]\nbase_url = https://global.example.com\n")
    found = [
        find_server(here, "https://argument.example.com"),
        find_server(here),
        find_server(places()),
    ]
    (here.cwd / "wandb" / "settings").unlink()
    found.append(find_server(places()))
    assert [server.base_url.split("//")[1].split(".")[0] for server in found] == [
        "argument",
        "variable",
        "local",
        "global",
    ]
    assert found[1].origin == "WANDB_BASE_URL"
    assert found[3].origin == str(here.home / ".config" / "wandb" / "settings")


def test_the_app_url_can_be_set(places):
    assert find_server(places(WANDB_APP_URL="https://x.example.com/"), URL).app_url == "https://x.example.com"


@pytest.mark.parametrize(
    "url",
    [
        "wandb",
        "ftp://w.example.com",
        "https://",
        "http://[::1",
        "https://w.example.com:99999",
        "https://w.example.com:port",
        "https://w.example.com/a b",
    ],
)
def test_what_is_no_plain_url_is_refused_with_where_it_came_from(places, url):
    with pytest.raises(UsageError) as caught:
        find_server(places(WANDB_BASE_URL=url))
    assert caught.value.message == (
        f"The W&B server address {url!r} from WANDB_BASE_URL is not a plain http or https URL"
    )


def test_an_address_of_the_web_pages_that_is_no_url_is_refused_too(places):
    with pytest.raises(UsageError, match="from WANDB_APP_URL is not a plain http or https URL"):
        find_server(places(WANDB_APP_URL="http://[::1"), URL)


def test_an_address_with_a_password_is_refused_and_not_repeated(places):
    with pytest.raises(UsageError, match="WANDB_BASE_URL") as caught:
        find_server(places(WANDB_BASE_URL="https://ada:geheim@w.example.com"))
    assert "geheim" not in str(caught.value)


def test_the_key_comes_from_argument_then_variable_then_netrc_then_settings(places):
    here = places(WANDB_API_KEY=OTHER, WANDB_BASE_URL=URL)
    write(here.home / ".netrc", netrc_text("wandb.example.com", THIRD))
    write(here.home / ".config" / "wandb" / "settings", f"[default]\napi_key = {'d' * 40}\n")
    without = places(WANDB_BASE_URL=URL)
    found = [find_account(here, api_key=KEY), find_account(here), find_account(without)]
    (here.home / ".netrc").unlink()
    found.append(find_account(without))
    assert [account.key for account in found] == [KEY, OTHER, THIRD, "d" * 40]
    assert [account.key_origin for account in found] == [
        "the argument",
        "WANDB_API_KEY",
        str(here.home / ".netrc"),
        str(here.home / ".config" / "wandb" / "settings"),
    ]


@pytest.mark.parametrize(
    ("url", "machine"),
    [
        ("https://wandb.example.com", "wandb.example.com"),
        ("https://wandb.example.com", "wandb.example.com:443"),
        ("http://localhost:8080", "localhost:8080"),
        ("http://localhost:8080", "localhost"),
        ("https://api.forge.coreweave.com", "api.wandb.ai"),
        ("https://api.wandb.ai", "api.wandb.ai"),
        ("https://api.wandb.ai", "wandb.ai"),
    ],
)
def test_netrc_names_the_machine_as_the_client_wants_it(places, monkeypatch, url, machine):
    here = places()
    write(here.home / "netrc", netrc_text(machine, KEY))
    monkeypatch.setenv("NETRC", str(here.home / "netrc"))
    witness = wbauth.read_netrc_auth(host=url)
    try:
        found = find_account(places(NETRC=str(here.home / "netrc")), base_url=url).key
    except CredentialsError:
        found = None
    assert found == witness


def test_a_netrc_in_the_environment_may_start_with_the_home(places):
    here = places(NETRC="~/keys", WANDB_BASE_URL=URL)
    write(here.home / "keys", netrc_text("wandb.example.com", KEY))
    assert find_account(here).key == KEY


def test_a_wrong_variable_is_not_rescued_by_a_right_netrc(places):
    here = places(WANDB_API_KEY="short", WANDB_BASE_URL=URL)
    write(here.home / ".netrc", netrc_text("wandb.example.com", KEY))
    with pytest.raises(CredentialsError, match="WANDB_API_KEY has 5 characters"):
        find_account(here)


@pytest.mark.parametrize(
    "key",
    [KEY, THIRD, "wandb_v1_" + "x" * 60, "head.body-er.sign_ature", "a" * 39, "a b" * 20, "local-short"],
)
def test_a_key_is_taken_exactly_where_the_client_takes_it(places, key):
    if wbauth.check_api_key(key) is None:
        assert find_account(places(), base_url=URL, api_key=key).key == key
        return
    with pytest.raises(CredentialsError) as caught:
        find_account(places(), base_url=URL, api_key=key)
    assert key not in str(caught.value)


def test_without_a_key_the_error_says_how_to_get_one(places):
    with pytest.raises(
        CredentialsError, match=r"No W&B key was found for https://wandb\.example\.com"
    ) as caught:
        find_account(places(WANDB_BASE_URL=URL))
    assert "wandb login" in caught.value.hint
    assert caught.value.exit_code == 4


def test_an_identity_token_is_said_to_be_of_no_use(places):
    here = places(WANDB_BASE_URL=URL, WANDB_IDENTITY_TOKEN_FILE="/file")  # noqa: S106 - a path
    with pytest.raises(CredentialsError) as caught:
        find_account(here)
    assert "WANDB_IDENTITY_TOKEN_FILE is not read" in caught.value.hint


def test_a_damaged_netrc_is_named_with_the_line_and_never_with_its_words(places):
    here = places(WANDB_BASE_URL=URL)
    write(here.home / ".netrc", f"machine wandb.example.com\n login user\n {KEY}\n")
    with pytest.raises(CredentialsError) as caught:
        find_account(here)
    assert "near line 4" in caught.value.hint
    assert KEY not in str(caught.value)


def test_a_damaged_settings_file_settles_nothing(places):
    here = places(WANDB_BASE_URL=URL)
    write(here.cwd / "wandb" / "settings", "base_url = without a section\n")
    write(here.home / ".config" / "wandb" / "settings", f"[default]\napi_key = {KEY}\n")
    assert find_account(here).key == KEY


def test_the_config_directory_can_be_moved_and_the_local_one_be_hidden(places, tmp_path):
    here = places(WANDB_CONFIG_DIR=str(tmp_path / "elsewhere"), WANDB_BASE_URL=URL)
    write(tmp_path / "elsewhere" / "settings", f"[default]\napi_key = {KEY}\n")
    assert find_account(here).key == KEY
    write(here.cwd / ".wandb" / "settings", f"[default]\napi_key = {OTHER}\n")
    assert find_account(here).key == OTHER


def test_an_account_does_not_show_its_key(places):
    account = find_account(places(), base_url=URL, api_key=KEY)
    assert KEY not in f"{account} {account!r}"


@pytest.mark.parametrize(
    ("url", "own"),
    [
        ("https://app.example.com/team/project", True),
        ("https://api.example.com/team/project", True),
        ("https://APP.example.com/team/project", True),
        ("https://example.com/team/project", False),
    ],
)
def test_a_server_knows_its_own_pages(url, own):
    server = Server("https://api.example.com", "https://app.example.com", "WANDB_BASE_URL")
    assert server.owns(url) is own


def test_old_links_to_the_cloud_still_belong_to_it(places):
    cloud = find_server(places())
    assert cloud.owns("https://wandb.ai/team/project/runs/7f3a")
    assert cloud.owns(f"{cloud.app_url}/team/project/runs/7f3a")
    assert not find_server(places(), URL).owns("https://wandb.ai/team/project")


def test_the_address_of_a_run_is_one_that_a_browser_takes():
    server = Server(URL, URL, "the argument")
    assert server.run_url("team", "my project", "7f3a") == f"{URL}/team/my%20project/runs/7f3a"
    assert server.run_url("team", "rl", "\ud800") == f"{URL}/team/rl/runs/%3F"
