"""The W&B server and the key for it, found where the wandb client finds them.

=========  ===================================================================================
what       looked for in this order
=========  ===================================================================================
base URL   argument, ``WANDB_BASE_URL``, ``base_url`` in a settings file, the client's default
app URL    ``WANDB_APP_URL``, derived from the base URL; only links are built from it
key        argument, ``WANDB_API_KEY``, netrc (``NETRC``, ``~/.netrc``, ``~/_netrc``; the machine is
           the host, with its port where it has one), ``api_key`` in a settings file
=========  ===================================================================================

Settings files are ``wandb/settings`` of the working directory, then ``$WANDB_CONFIG_DIR/settings``,
``~/.config/wandb/settings`` by default. Read from wandb 0.31.0.
"""

from __future__ import annotations

import ast
import configparser
import importlib.util
import netrc
import re
from base64 import b64encode
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlsplit

from step0_wandb.errors import CredentialsError, UsageError
from step0_wandb.text.paths import user_path

if TYPE_CHECKING:
    from collections.abc import Mapping

_LOG_IN = "Set WANDB_API_KEY, or run `wandb login`."
_SHORTEST_KEY = 40
_JWT = re.compile(r"[\w-]+\.[\w-]+\.[\w-]+")


@dataclass(frozen=True, slots=True)
class Places:
    """Where to look; the environment and both directories are given, so that tests own them.

    Attributes
    ----------
    home, cwd : Path
        The user's home and the working directory.
    """

    environ: Mapping[str, str] = field(repr=False)  # the key may be in it
    home: Path
    cwd: Path

    @classmethod
    def of(cls, environ: Mapping[str, str]) -> Places:
        """Return the places of this process and this environment."""
        return cls(environ, Path(environ.get("HOME") or user_path("~")), Path.cwd())

    def path(self, text: str) -> Path:
        """Return a path from a variable, with ``~`` for the home."""
        return self.home / text[2:] if text.startswith("~/") else Path(text)


@dataclass(frozen=True, slots=True)
class Server:
    """A W&B server.

    Attributes
    ----------
    base_url : str
        Where requests go, without a slash at the end.
    app_url : str
        Where people look at runs.
    origin : str
        Where the base URL was found.
    """

    base_url: str
    app_url: str
    origin: str

    def owns(self, url: str) -> bool:
        """Return whether a web page's URL belongs to this server."""
        try:
            host = urlsplit(url).netloc.lower()
        except ValueError:
            return False
        mine = {urlsplit(self.base_url).netloc.lower(), urlsplit(self.app_url).netloc.lower()}
        if upstream := _sdk().upstream_of(self.base_url):
            mine.add(upstream.removeprefix("api."))  # links from before the cloud moved
        return host in mine

    def run_url(self, entity: str, project: str, run_id: str) -> str:
        """Return the address of a run's page."""
        parts = (quote(part, errors="replace") for part in (entity, project, "runs", run_id))
        return "/".join((self.app_url, *parts))


@dataclass(frozen=True, slots=True)
class Account:
    """A server and the key for it; the key never shows.

    Attributes
    ----------
    key_origin : str
        Where the key was found.
    """

    server: Server
    key: str = field(repr=False)
    key_origin: str

    @property
    def basic_auth(self) -> str:
        """Return the credentials of HTTP Basic, as W&B takes them."""
        return b64encode(f"api:{self.key}".encode()).decode()


def find_server(places: Places, base_url: str | None = None) -> Server:
    """Return the server that the wandb client would use.

    Raises
    ------
    UsageError
        The base URL, or that of the web pages, is not a plain http or https URL.
    """
    url, origin = _base_url(places, base_url)
    _check_url(url, origin)
    url = url.rstrip("/")
    app_url = places.environ.get("WANDB_APP_URL")
    if app_url:
        _check_url(app_url, "WANDB_APP_URL")
    return Server(url, (app_url or _sdk().app_url(url)).rstrip("/"), origin)


def _check_url(url: str, origin: str) -> None:
    try:
        parts = urlsplit(url)
        is_plain = parts.scheme in {"http", "https"} and parts.hostname and parts.port != 0
    except ValueError:  # a bracket that is not closed, or a port that is not a number up to 65535
        is_plain = False
    if not is_plain or "@" in url or re.search(r"\s", url):
        shown = "" if "@" in url else f" {url!r}"  # a password may stand before the @
        raise UsageError(
            f"The W&B server address{shown} from {origin} is not a plain http or https URL",
            "It looks like https://wandb.example.com.",
        )


def find_account(places: Places, *, base_url: str | None = None, api_key: str | None = None) -> Account:
    """Return the server and the key for it.

    Raises
    ------
    CredentialsError
        There is no key, or what was found cannot be one. The key is not in the message.
    UsageError
        As `find_server`.
    """
    server = find_server(places, base_url)
    found = _key(places, server, api_key)
    if found is None:
        raise CredentialsError(f"No W&B key was found for {server.base_url}", _missing_key_hint(places))
    key, origin = found
    if fault := _fault_of_key(key):
        raise CredentialsError(f"The W&B key from {origin} {fault}", _LOG_IN)
    return Account(server, key, origin)


def _missing_key_hint(places: Places) -> str:
    if places.environ.get("WANDB_IDENTITY_TOKEN_FILE"):
        return f"WANDB_IDENTITY_TOKEN_FILE is not read here. {_LOG_IN}"
    path = _netrc_path(places)
    if path is not None and (fault := _fault_of_netrc(path)):
        return f"The netrc file {path} cannot be read: {fault}. {_LOG_IN}"
    return _LOG_IN


def _base_url(places: Places, given: str | None) -> tuple[str, str]:
    if given:
        return given, "the argument"
    if url := places.environ.get("WANDB_BASE_URL"):
        return url, "WANDB_BASE_URL"
    if found := _from_settings_files(places, "base_url"):
        return found
    return _sdk().default_url, "the wandb client's default"


def _key(places: Places, server: Server, given: str | None) -> tuple[str, str] | None:
    if given:
        return given, "the argument"
    if key := places.environ.get("WANDB_API_KEY"):
        return key, "WANDB_API_KEY"
    return _from_netrc(places, server) or _from_settings_files(places, "api_key")


def _fault_of_key(key: str) -> str:
    """Return why this cannot be a key; empty where it can."""
    secret = key.partition("-")[2] or key
    if _JWT.fullmatch(key):
        return ""
    if not re.fullmatch(r"[\w-]+", secret):
        return "holds characters that no key has"
    if len(secret) < _SHORTEST_KEY:
        return f"has {len(secret)} characters, a key has at least {_SHORTEST_KEY}"
    return ""


def _from_netrc(places: Places, server: Server) -> tuple[str, str] | None:
    path = _netrc_path(places)
    if path is None or _fault_of_netrc(path):
        return None  # as the client does: it warns, and looks on
    entries = netrc.netrc(str(path))
    for machine in (urlsplit(server.base_url).netloc, _sdk().upstream_of(server.base_url)):
        found = entries.authenticators(machine) if machine else None
        if found and found[2]:
            return found[2], str(path)
    return None


def _fault_of_netrc(path: Path) -> str:
    """Return why a netrc file cannot be read; never with its words, which may be secrets."""
    try:
        netrc.netrc(str(path))
    except netrc.NetrcParseError as error:
        return f"it is not understood near line {error.lineno}"
    except UnicodeDecodeError:
        return "it is not UTF-8 text"
    except OSError as error:
        return str(error.strerror)
    return ""


def _netrc_path(places: Places) -> Path | None:
    if named := places.environ.get("NETRC"):
        return places.path(named)
    names = (places.home / ".netrc", places.home / "_netrc")
    return next((path for path in names if path.exists()), None)


def _from_settings_files(places: Places, key: str) -> tuple[str, str] | None:
    directory = places.environ.get("WANDB_CONFIG_DIR")
    own = places.path(directory) if directory else places.home / ".config" / "wandb"
    here = places.cwd / (".wandb" if (places.cwd / ".wandb").exists() else "wandb")
    for path in (here / "settings", own / "settings"):
        parser = configparser.ConfigParser(interpolation=None)
        try:
            parser.read(path, encoding="utf-8")
        except (configparser.Error, OSError, UnicodeDecodeError):
            continue  # as the client does: a damaged file settles nothing
        if value := parser.get("default", key, fallback=""):
            return value, str(path)
    return None


@dataclass(frozen=True, slots=True)
class _Sdk:
    """What the installed wandb client knows of W&B's own cloud.

    `import wandb` takes two seconds, which is longer than a sync without news. The addresses are
    constants of one of its files, so that file is read instead.

    Attributes
    ----------
    clouds : mapping of str to str
        The host of each cloud, and the host of the API behind it.
    """

    default_url: str
    clouds: Mapping[str, str]
    app_path: str

    def upstream_of(self, url: str) -> str | None:
        """Return the host of the API behind a cloud's address; None for other servers."""
        host = urlsplit(url).hostname
        return next((api for cloud, api in self.clouds.items() if host in (cloud, f"api.{cloud}", api)), None)

    def app_url(self, base_url: str) -> str:
        """Return the address of the web pages, as the client derives it."""
        if api := self.upstream_of(base_url):
            cloud = next(cloud for cloud, upstream in self.clouds.items() if upstream == api)
            return f"https://{cloud}{self.app_path}"
        if "://api.wandb." in base_url and "://api.wandb.test" not in base_url:
            return base_url.replace("://api.", "://", 1)
        return base_url.replace("://api.", "://app.", 1)


@cache
def _sdk() -> _Sdk:
    """Return what the installed client says."""
    spec = importlib.util.find_spec("wandb")
    if spec is None or spec.origin is None:
        raise UsageError("The wandb package is not installed", "Install it: pip install wandb.")
    path = Path(spec.origin).parent / "sdk" / "lib" / "urls.py"
    known = _constants(path) if path.exists() else {}
    return _Sdk(
        default_url=known.get("DEFAULT_BASE_URL") or _default_by_import(),
        clouds=known.get("FORGE_HOSTS", {}),
        app_path=known.get("FORGE_APP_PATH", ""),
    )


def _constants(path: Path) -> dict[str, Any]:
    """Return the literals that a module assigns at its top, without running it."""
    found = {}
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Constant() | ast.Dict() as value):
                found[name] = ast.literal_eval(value)
    return found


def _default_by_import() -> str:
    """Return the default of clients that keep it elsewhere; slow."""
    import wandb

    return str(wandb.Settings.model_fields["base_url"].default)
