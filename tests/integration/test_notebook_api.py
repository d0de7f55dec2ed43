"""The notebook API: plain pandas in and out, the command's own answers, and nothing printed."""

import gc
import json
import pickle
import re
import sqlite3

import matplotlib as mpl
import pandas as pd
import pytest
from matplotlib.axes import Axes

import step0_wandb as s0
from step0_wandb.errors import UsageError
from tests.support.command import run
from tests.support.miles import CONFIG, GAP, miles_run

HEALTHY = {"h1": 0.0150, "h2": 0.0152, "h3": 0.0149, "h4": 0.0151}
BROKEN = "wrong"
BASE = "/ckpt/Qwen3-0.6B-Base_torch_dist"


@pytest.fixture(scope="module", autouse=True)
def without_a_screen():
    mpl.use("agg")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Return a folder with four healthy runs, and one whose trainer loaded another checkpoint."""
    place = tmp_path_factory.mktemp("notebook")
    for index, (name, gap) in enumerate(HEALTHY.items()):
        miles_run(place, name, gap, started=1767225600 + 60 * index)
    miles_run(place, BROKEN, 0.0461, started=1767226600, config={"load": BASE, "ref_load": BASE})
    return place


@pytest.fixture
def verdicts(folder):
    return s0.judge(s0.load_runs(folder))


def test_runs_have_the_columns_of_the_contract_one_row_a_run(folder):
    runs = s0.load_runs(folder)
    assert {
        *("run", "entity", "project", "run_id", "name", "url", "user", "group", "created_at", "state"),
        *("profile", "setup", "ppo_kl", "clip_frac", "gap", "gap_metric", "label"),
    } <= set(runs.columns)
    assert runs["run"].is_unique
    assert len(runs) == 5
    assert str(runs["created_at"].dt.tz) == "UTC"
    assert set(runs["gap_metric"]) == {GAP}


def test_config_keys_and_numbers_of_step_0_come_on_request(folder):
    runs = s0.load_runs(folder, config=["hf_checkpoint"], metrics=["rollout/response_len/mean", "train/loss"])
    assert set(runs["hf_checkpoint"]) == {CONFIG["hf_checkpoint"]}
    assert set(runs["rollout/response_len/mean"]) == {812.5}
    assert set(runs["train/loss"]) == {0.01}


def test_ranges_have_one_row_a_setup(folder):
    ranges = s0.fit_ranges(s0.load_runs(folder))
    assert ranges.index.name == "setup"
    assert {"n", "center", "low", "high", "seen_low", "seen_high", "sigma", "df", "basis"} <= set(
        ranges.columns
    )
    assert ranges["n"].tolist() == [4]
    assert (ranges["seen_low"].item(), ranges["seen_high"].item()) == (0.0149, 0.0152)


def test_ranges_rest_on_the_runs_that_those_of_a_sync_rest_on(tmp_path):
    for name, gap in HEALTHY.items():
        miles_run(tmp_path, name, gap)
    miles_run(tmp_path, "dropout", 0.0151, ppo_kl=0.3, clip_frac=0.05)
    (stored,) = s0.sync([tmp_path], store=tmp_path / "step0.db").setups
    (fitted,) = s0.fit_ranges(s0.load_runs(tmp_path)).itertuples()
    assert (fitted.n, fitted.low, fitted.high) == (stored.n, stored.low, stored.high)
    assert stored.n == 4


def test_verdicts_are_the_runs_with_a_verdict_and_its_reason(folder):
    runs = s0.load_runs(folder)
    verdicts = s0.judge(runs, s0.fit_ranges(runs))
    assert verdicts[runs.columns.tolist()].equals(runs)
    assert {"verdict", "reason", "ratio", "p_value", "low", "high"} <= set(verdicts.columns)
    by_id = verdicts.set_index("run_id")["verdict"].to_dict()
    assert by_id == dict.fromkeys(HEALTHY, "healthy") | {BROKEN: "broken"}


def test_charts_return_their_axes(verdicts, folder):
    ranges = s0.fit_ranges(s0.load_runs(folder))
    assert isinstance(s0.plot_gaps(verdicts, ranges), Axes)


def test_explaining_gives_the_answer_of_the_command(folder, verdicts, tmp_path):
    assert run("sync", folder, "--store", "s.db", cwd=tmp_path).code == 0
    said = run("explain", BROKEN, "--store", "s.db", "--json", cwd=tmp_path).document
    for frame in (verdicts, s0.judge(s0.load_runs(store=tmp_path / "s.db"))):
        found = s0.explain(frame, BROKEN)
        assert [f"{cause.text}: {cause.advice}" for cause in found.causes] == said["causes"]
        assert [item.key for item in found.differs] == [item["key"] for item in said["differs"]]
        assert list(found.run.reasons) == said["run"]["reasons"]
        assert {"load", "ref_load"} <= {item.key for item in found.differs}


@pytest.mark.parametrize(
    "step",
    [
        lambda frame: frame.copy(),
        lambda frame: frame.query("verdict == 'broken'"),
        lambda frame: frame[frame["verdict"] == "broken"].reset_index(drop=True),
        lambda frame: frame.sort_values("gap", ascending=False).head(1),
        lambda frame: frame.assign(mine=1).rename(columns={"user": "who"}),
        lambda frame: frame[["run", "run_id", "gap", "verdict"]],
        lambda frame: frame.set_index("run"),
        lambda frame: pickle.loads(pickle.dumps(frame)),  # noqa: S301 - our own bytes
    ],
)
def test_a_frame_is_explained_as_before_after_common_pandas_steps(verdicts, step):
    frame = step(verdicts)
    assert str(s0.explain(frame, BROKEN)) == str(s0.explain(verdicts, BROKEN))


def test_what_was_changed_in_a_frame_holds(verdicts):
    changed = verdicts.copy()
    changed.loc[changed["run_id"] == BROKEN, "setup"] = "miles · mine"
    assert s0.explain(changed, BROKEN).run.range is None
    changed.loc[changed["run_id"] == BROKEN, "label"] = "healthy"
    assert s0.explain(changed, BROKEN).run.verdict == "healthy"


def test_frames_can_be_written_to_files_that_keep_attrs_as_json(verdicts):
    assert json.loads(json.dumps(verdicts.attrs)) == verdicts.attrs


def test_a_frame_from_such_a_file_says_where_its_runs_were_read(verdicts, folder):
    frame = verdicts.copy()
    frame.attrs = json.loads(json.dumps(verdicts.attrs))
    with pytest.raises(UsageError, match="Load the runs again") as caught:
        s0.explain(frame, BROKEN)
    assert str(folder) in str(caught.value)


def test_a_frame_of_a_store_finds_it_again_from_such_a_file(folder, tmp_path):
    run("sync", folder, "--store", "s.db", cwd=tmp_path)
    verdicts = s0.judge(s0.load_runs(store=tmp_path / "s.db"))
    frame = verdicts.copy()
    frame.attrs = json.loads(json.dumps(verdicts.attrs))
    assert str(s0.explain(frame, BROKEN)) == str(s0.explain(verdicts, BROKEN))


def test_a_frame_that_forgot_its_origin_says_what_to_pass(verdicts):
    for frame in (pd.DataFrame(verdicts.to_dict("list")), verdicts.drop(columns="run")):
        with pytest.raises(UsageError, match="load_runs"):
            s0.explain(frame, BROKEN)


def test_frames_of_several_loads_can_be_joined(verdicts, tmp_path):
    miles_run(tmp_path, "other", 0.0150)
    both = pd.concat([verdicts, s0.judge(s0.load_runs(tmp_path))], ignore_index=True)
    assert len(s0.judge(both)) == 6
    with pytest.raises(UsageError, match="load_runs"):
        s0.explain(both, "other")


@pytest.mark.parametrize("text", ["nobody", "run-nobody", ""])
def test_a_run_that_is_not_there_is_told(verdicts, text):
    with pytest.raises(UsageError, match=f"no run '{text}' in the frame"):
        s0.explain(verdicts, text)


def test_a_name_of_several_runs_is_told_with_a_key(tmp_path):
    for name in ("a", "b"):
        miles_run(tmp_path, name, display_name="same")
    with pytest.raises(UsageError, match="names 2 runs"):
        s0.explain(s0.load_runs(tmp_path), "same")


def test_no_database_stays_open_behind_a_frame(folder):
    def open_ones():
        gc.collect()
        return [item for item in gc.get_objects() if isinstance(item, sqlite3.Connection)]

    before = len(open_ones())
    verdicts = s0.judge(s0.load_runs(folder))
    s0.explain(verdicts, BROKEN)
    assert len(open_ones()) == before


def test_an_explanation_reads_well_in_a_prompt(verdicts):
    lines = str(s0.explain(verdicts, BROKEN)).splitlines()
    assert lines[0] == "broken: run-wrong"
    assert lines[1].split(maxsplit=1)[0] == "why"
    assert repr(s0.explain(verdicts, BROKEN)) == "\n".join(lines)
    assert max(map(len, lines)) <= 100
    assert any(line.split()[:2] == ["differs", "load:"] for line in lines)


def test_an_explanation_in_a_notebook_is_html_in_which_names_are_text(tmp_path):
    for name, gap in HEALTHY.items():
        miles_run(tmp_path, name, gap)
    evil = "</td><script>alert(1)</script>\x1b[31m"
    miles_run(tmp_path, "x", 0.0461, display_name=evil, config={"note": "<img src=x onerror=alert(1)>"})
    found = s0.explain(s0.judge(s0.load_runs(tmp_path)), "x")
    assert set(re.findall(r"<(\w+)", found._repr_html_())) == {"div", "strong", "table", "tr", "td"}
    assert "&lt;img src=x" in found._repr_html_()
    assert "\x1b" not in found._repr_html_() + str(found)


def test_nothing_is_printed_and_no_bar_is_drawn(folder, tmp_path, capfd):
    verdicts = s0.judge(s0.load_runs(folder))
    s0.explain(verdicts, BROKEN)
    s0.sync([folder], store=tmp_path / "s.db", html=tmp_path / "page.html")
    assert capfd.readouterr() == ("", "")


def test_a_sync_from_a_notebook_is_the_main_job(folder, tmp_path):
    result = s0.sync([folder], store=tmp_path / "s.db")
    assert result.counts == {"healthy": 4, "broken": 1}
    assert [item.name for item in result.changed if item.verdict == "broken"] == ["run-wrong"]
    assert len(s0.load_runs(store=tmp_path / "s.db")) == 5


def test_a_source_and_a_store_at_once_are_refused(folder, tmp_path):
    with pytest.raises(UsageError, match="not both"):
        s0.load_runs(folder, store=tmp_path / "s.db")


def test_what_a_sync_did_reads_well_in_a_prompt_and_in_a_notebook(folder, tmp_path):
    miles_run(tmp_path, "blind", None, config={"use_rollout_logprobs": True})
    result = s0.sync([folder, tmp_path], store=tmp_path / "s.db", html=tmp_path / "page.html")
    summary, *lines = str(result).splitlines()
    assert summary == "6 runs seen, 6 new; stored: 1 broken, 1 unchecked, 4 healthy"
    assert " ".join(lines[0].split()).startswith("broken run-wrong: gap 0.0461 is 3.1 times the center")
    assert any(line.startswith("  not checked: gap on 1 of 6 miles runs") for line in lines)
    assert repr(result) == str(result)
    assert f"<strong>{summary}</strong>" in result._repr_html_()


def test_a_second_sync_says_what_is_still_not_checked(tmp_path):
    miles_run(tmp_path, "blind", None)
    first = s0.sync([tmp_path], store=tmp_path / "s.db")
    second = s0.sync([tmp_path], store=tmp_path / "s.db")
    assert second.not_checked == first.not_checked
    assert second.not_checked[0].startswith("gap on 1 of 1 miles run")
