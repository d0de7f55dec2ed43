"""Settings: flag > environment > file > default, and clear words for what is wrong."""

from datetime import timedelta
from pathlib import Path

import pytest

from step0_wandb.errors import UsageError
from step0_wandb.settings.load import describe, load_settings
from step0_wandb.text.durations import duration


def write(folder, text, name="step0.toml"):
    (folder / name).write_text(text)
    return folder / name


def load(folder, environ=None, **flags):
    return load_settings(cwd=folder, environ=environ or {}, flags=flags)


def test_without_a_file_the_defaults_work(tmp_path):
    loaded = load(tmp_path)
    assert loaded.settings.ranges.alpha == 0.001
    assert loaded.settings.alerts.since == timedelta(hours=24)
    assert loaded.sources == ()
    assert loaded.store.name == "step0.db"


def test_the_file_is_found_upwards_and_the_store_lies_beside_it(tmp_path):
    write(tmp_path, "[ranges]\nalpha = 0.01\n")
    inner = tmp_path / "a" / "b"
    inner.mkdir(parents=True)
    loaded = load(inner)
    assert loaded.settings.ranges.alpha == 0.01
    assert loaded.store == tmp_path / "step0.db"


def test_a_table_in_pyproject_serves_as_well(tmp_path):
    write(tmp_path, "[tool.step0-wandb]\nstore = 'x/y.db'\n", "pyproject.toml")
    assert load(tmp_path).store == tmp_path / "x" / "y.db"


def test_a_pyproject_without_the_table_is_passed_over(tmp_path):
    write(tmp_path, "[ranges]\nalpha = 0.02\n")
    inner = tmp_path / "inner"
    inner.mkdir()
    write(inner, "[tool.other]\nx = 1\n", "pyproject.toml")
    assert load(inner).settings.ranges.alpha == 0.02


@pytest.mark.parametrize("text", ["tool = 1\n", "[tool]\nx = 'step0-wandb'\n", "tool = 'step0-wandb'\n"])
def test_a_pyproject_with_odd_tools_is_passed_over(tmp_path, text):
    write(tmp_path, text, "pyproject.toml")
    assert load(tmp_path).file is None


def test_a_pyproject_where_the_table_is_none_is_told(tmp_path):
    write(tmp_path, "[tool]\nstep0-wandb = 1\n", "pyproject.toml")
    with pytest.raises(UsageError, match=r"tool\.step0-wandb is not a table"):
        load(tmp_path)


def test_a_file_of_a_windows_editor_is_read(tmp_path):
    (tmp_path / "step0.toml").write_bytes(b"\xef\xbb\xbfstore = 'x.db'\r\n[ranges]\r\nalpha = 0.01\r\n")
    loaded = load(tmp_path)
    assert (loaded.store, loaded.settings.ranges.alpha) == (tmp_path / "x.db", 0.01)


def test_a_file_without_an_end_is_not_read_to_it(tmp_path):
    with pytest.raises(UsageError, match="larger than"):
        load_settings(Path("/dev/zero"), cwd=tmp_path, environ={})


def test_a_home_that_there_is_not_stands_as_it_is_written(tmp_path):
    write(tmp_path, "store = '~no-such-user/step0.db'\nsources = ['~no-such-user/wandb']\n")
    loaded = load(tmp_path)
    assert loaded.store == tmp_path / "~no-such-user" / "step0.db"
    assert loaded.sources == (f"file:{tmp_path}/~no-such-user/wandb",)


def test_a_source_with_a_name_that_no_path_can_have_is_no_path(tmp_path):
    write(tmp_path, f"sources = ['{'x' * 300}']\n")
    assert load(tmp_path).sources == ("x" * 300,)


def test_the_environment_beats_the_file_and_a_flag_beats_both(tmp_path):
    write(tmp_path, "store = 'file.db'\n[ranges]\nbroken_ratio = 3\n")
    environ = {"STEP0_STORE": "env.db", "STEP0_RANGES_BROKEN_RATIO": "2.5", "STEP0_SOURCES": "a/b, ./c"}
    loaded = load(tmp_path, environ)
    assert loaded.store == tmp_path / "env.db"
    assert loaded.settings.ranges.broken_ratio == 2.5
    assert loaded.settings.sources == ("a/b", "./c")
    assert load(tmp_path, environ, store="/flag.db").store.as_posix() == "/flag.db"


def test_a_store_from_the_environment_is_relative_to_where_one_stands(tmp_path):
    write(tmp_path, "")
    inner = tmp_path / "inner"
    inner.mkdir()
    assert load(inner, {"STEP0_STORE": "mine.db"}).store == inner / "mine.db"


def test_every_value_knows_its_origin(tmp_path):
    file = write(tmp_path, "[ranges]\nalpha = 0.01\n")
    rows = {row.key: row for row in describe(load(tmp_path, {"STEP0_ALERTS_DIGEST": "7"}))}
    assert rows["ranges.alpha"].origin == str(file)
    assert (rows["alerts.digest"].value, rows["alerts.digest"].origin) == (7, "STEP0_ALERTS_DIGEST")
    assert rows["ranges.broken_ratio"].origin == "default"


def test_a_source_that_is_a_path_of_the_file_becomes_absolute(tmp_path):
    write(tmp_path, "sources = ['team/project', './wandb', 'runs']\n")
    (tmp_path / "runs").mkdir()
    assert load(tmp_path / "runs").sources == (
        "team/project",
        f"file:{tmp_path / 'wandb'}",
        f"file:{tmp_path / 'runs'}",
    )


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("sorces = ['a/b']\n", "Did you mean sources?"),
        ("[ranges]\nalhpa = 0.1\n", "Did you mean ranges.alpha?"),
        ("[rangs]\nalpha = 0.1\n", "Did you mean ranges?"),
        ("[setup.miles]\nadded = []\n", "Did you mean setup.miles.add?"),
        ("[report]\nzzz = 1\n", "Known: html, wandb, home, state."),
        ("[ranges]\nalpha = 0\n", "ranges.alpha = 0"),
        ("[ranges]\nbroken_ratio = 'big'\n", "ranges.broken_ratio = 'big'"),
        ("[alerts]\nsince = 'soon'\n", "use 90s, 60m, 24h or 7d"),
        ("[alerts]\nlevels = ['no-range']\n", "alerts.levels"),
        ("store = \n", "is not valid TOML"),
        ("sources = " + "[" * 5000 + "]" * 5000, "is not valid TOML"),
        ("[alerts]\ndigest = " + "9" * 5000, "is not valid TOML"),
        ("#" + "x" * 1_000_000, "larger than 1,000,000 characters"),
        ("'a.b' = 1\n", "unknown setting a.b"),
        ("[ranges]\n'a.b' = 1\n", "unknown setting ranges.a.b"),
        ("[alerts]\nsince = '99999999999999d'\n", "alerts.since"),
        ("[alerts]\nsince = '9999999d'\n", "longer than 36,500 days"),
        ("[alerts]\nwebhook_env = 'https://hooks.example.com/T0/B0'\n", "name of an environment variable"),
        ("store = 'hf_" + "a1B2" * 9 + "'\n", "looks like a secret"),
        ("sources = ['x', '" + "0123456789abcdef" * 2 + "01234567']\n", "looks like a secret"),
    ],
)
def test_what_is_wrong_in_the_file_is_named_with_what_to_do(tmp_path, text, said):
    file = write(tmp_path, text)
    with pytest.raises(UsageError) as caught:
        load(tmp_path)
    assert said in str(caught.value)
    assert str(file) in str(caught.value)
    assert len(str(caught.value).splitlines()) <= 3


@pytest.mark.parametrize(
    ("place", "secret"),
    [
        ("store = '{}'\n", "hf_" + "a1B2" * 9),
        ("[alerts]\nwebhook_env = '{}'\n", "hf_" + "a1B2" * 9),
        ("[alerts]\nwebhook_env = '{}'\n", "https://hooks.example.com/T0/B0"),
    ],
)
def test_a_refused_secret_is_not_repeated(tmp_path, place, secret):
    write(tmp_path, place.format(secret))
    with pytest.raises(UsageError) as caught:
        load(tmp_path)
    assert secret not in str(caught.value)


def test_a_wrong_value_from_the_environment_names_the_variable(tmp_path):
    with pytest.raises(UsageError, match="STEP0_RANGES_ALPHA"):
        load(tmp_path, {"STEP0_RANGES_ALPHA": "much"})


@pytest.mark.parametrize(
    ("name", "meant"),
    [("STEP0_ALERTS_DIGST", "STEP0_ALERTS_DIGEST"), ("STEP0_STOR", "STEP0_STORE"), ("STEP0_SOURCE", "STEP0_SOURCES")],
)  # fmt: skip
def test_a_slip_in_a_variable_is_an_error_that_names_the_one_that_was_meant(tmp_path, name, meant):
    with pytest.raises(
        UsageError, match=rf"^unknown setting {name} in the environment(.|\n)*Did you mean {meant}\?"
    ):
        load(tmp_path, {name: "1"})


def test_variables_of_others_and_the_one_of_the_webhook_are_left_alone(tmp_path):
    given = ("RUN", "VERDICT", "REASON", "STOPPED", "URL", "WEBHOOK")
    load(tmp_path, {f"STEP0_{name}": "1" for name in given} | {"STORE": "x", "XSTEP0_STOR": "1"})
    write(tmp_path, "[alerts]\nwebhook_env = 'STEP0_ALERTS_WEBHOOK'\n")
    assert load(tmp_path, {"STEP0_ALERTS_WEBHOOK": "x"}).settings.alerts.digest == 5


def test_a_file_that_is_not_there_is_an_error_with_its_name(tmp_path):
    with pytest.raises(UsageError, match=r"Cannot read the settings file .*nowhere"):
        load_settings(tmp_path / "nowhere.toml", cwd=tmp_path, environ={})


@pytest.mark.parametrize(
    ("text", "seconds"), [("90s", 90), ("60m", 3600), ("24h", 86400), ("7d", 604800), ("1.5 h", 5400)]
)
def test_a_time_span_is_read(text, seconds):
    assert duration(text).total_seconds() == seconds


@pytest.mark.parametrize("text", ["", "7", "d", "-1d", "7 days", "1h30m"])
def test_what_is_no_time_span_is_refused(text):
    with pytest.raises(ValueError, match="duration"):
        duration(text)
