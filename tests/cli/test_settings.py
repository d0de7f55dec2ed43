"""``step0-wandb settings``: what holds, where it came from, and a file to start from."""

import itertools
import re
import resource
import tomllib

import pytest

from step0_wandb.settings.load import load_settings
from step0_wandb.settings.options import Settings, SetupSettings
from tests.support.command import run
from tests.support.miles import miles_run


@pytest.fixture
def started(tmp_path):
    """Return a folder with a fresh settings file, and what the command said."""
    answer = run("settings", "--init", cwd=tmp_path)
    assert (answer.code, answer.out) == (0, ""), answer.err
    assert "step0.toml" in answer.err
    return tmp_path


def uncommented(text):
    return re.sub(r"^#(?! )", "", text, flags=re.MULTILINE)


def keys_of(model):
    """Return the dotted keys of a settings model, walked without the code under test."""
    schema = model.model_json_schema()

    def walk(node, prefix):
        node = schema["$defs"][node["$ref"].rsplit("/", 1)[-1]] if "$ref" in node else node
        for name, part in node.get("properties", {}).items():
            inner = list(walk(part, f"{prefix}{name}."))
            yield from inner or [f"{prefix}{name}"]

    return set(walk(schema, "")) - {"setup"}


def leaves(table, prefix=""):
    for name, value in table.items():
        yield from leaves(value, f"{prefix}{name}.") if isinstance(value, dict) else [f"{prefix}{name}"]


def test_the_file_to_start_from_changes_nothing(started):
    loaded = load_settings(cwd=started, environ={})
    assert loaded.file == started / "step0.toml"
    assert loaded.settings == Settings()
    assert not loaded.origins


def test_it_says_how_to_keep_the_store_that_was_used_before_it(tmp_path):
    (tmp_path / "here").mkdir()
    miles_run(tmp_path, "one", 0.0151)
    run("sync", ".", cwd=tmp_path)
    (kept,) = tmp_path.rglob("step0.db")
    assert kept.is_relative_to(tmp_path / ".local")
    said = run("settings", "--init", cwd=tmp_path / "here", HOME=str(tmp_path)).err
    (line,) = re.findall("set (store = .*)", said)
    file = tmp_path / "here" / "step0.toml"
    file.write_text(f"{line}\n{file.read_text()}")
    assert load_settings(cwd=tmp_path / "here", environ={}).store == kept


def test_every_setting_is_in_it_and_the_defaults_it_shows_are_true(started):
    text = uncommented((started / "step0.toml").read_text())
    setups = {f"setup.miles.{name}" for name in SetupSettings.model_fields}
    assert set(leaves(tomllib.loads(text))) == keys_of(Settings) | setups
    (started / "step0.toml").write_text(text)
    loaded = load_settings(cwd=started, environ={})
    assert loaded.settings.setup.pop("miles") == SetupSettings()
    assert loaded.settings == Settings()
    assert loaded.store == started / "step0.db"


def test_every_setting_in_it_has_a_sentence_above(started):
    lines = (started / "step0.toml").read_text().splitlines()
    for above, line in itertools.pairwise(lines):
        if re.match(r"#\w+ =|#?\[", line):
            assert re.fullmatch(r"# \S.*\.", above), line


def test_a_file_that_is_there_is_never_written_over(tmp_path):
    (tmp_path / "step0.toml").write_text("# mine\n")
    answer = run("settings", "--init", cwd=tmp_path)
    assert answer.code == 2
    assert "step0.toml" in answer.err
    assert (tmp_path / "step0.toml").read_text() == "# mine\n"


def test_it_is_written_where_the_settings_option_says(tmp_path):
    (tmp_path / "conf").mkdir()
    answer = run("settings", "--init", "--settings", "conf/rl.toml", "--json", cwd=tmp_path)
    assert {row["origin"] for row in answer.document["settings"]} == {"default"}
    assert (tmp_path / "conf" / "rl.toml").exists()
    assert not (tmp_path / "step0.toml").exists()


def test_a_disk_that_is_full_leaves_no_half_of_a_file(tmp_path):
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, before[1]))
    try:
        answer = run("settings", "--init", cwd=tmp_path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert answer.code == 2
    assert "Cannot write step0.toml: File too large" in answer.err
    assert not list(tmp_path.iterdir())


def test_a_folder_that_is_not_there_is_told(tmp_path):
    answer = run("settings", "--init", "--settings", "none/rl.toml", cwd=tmp_path)
    assert answer.code == 2
    assert "none/rl.toml" in answer.err


def test_time_spans_are_shown_as_they_are_written(started):
    rows = {row["key"]: row["value"] for row in run("settings", "--json", cwd=started).document["settings"]}
    assert (rows["alerts.since"], rows["server.give_up"]) == ("24h", "2m")


def test_an_empty_value_takes_a_setting_back(tmp_path):
    (tmp_path / "step0.toml").write_text("[report]\nhtml = 'page.html'\n")
    answer = run("settings", "--json", cwd=tmp_path, STEP0_REPORT_HTML="")
    (row,) = [row for row in answer.document["settings"] if row["key"] == "report.html"]
    assert row == {"key": "report.html", "value": None, "origin": "STEP0_REPORT_HTML"}
