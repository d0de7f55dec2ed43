"""How well runs follow what their ranges assume: found with the verdicts, told by command and page."""

import json
from datetime import UTC, datetime

import numpy as np
import pandas as pd
import pytest

import step0_wandb as s0
from step0_wandb.app.sync import Job, run_sync
from step0_wandb.settings.load import load_settings
from step0_wandb.store import NOWHERE, Store
from step0_wandb.store.kept import load_goodness, save_goodness
from step0_wandb.verdicts.goodness import GoodnessOfFit, goodness_rows
from tests.support.command import run
from tests.support.miles import miles_run

NOW = datetime(2026, 1, 10, tzinfo=UTC)
METRIC = "train/train_rollout_logprob_abs_diff"
FITS = GoodnessOfFit(METRIC, 212, 0.4, 0.43, 0.05, 0.0142, 0.02, np.inf, 1.0, 6.0, 0.02)


def test_command_and_page_tell_what_the_notebook_finds(tmp_path):
    for at, noise in enumerate(np.random.default_rng(1).normal(0, 0.02, 12)):
        model = dict.fromkeys(("hf_checkpoint", "load", "ref_load"), f"/m/Qwen3-{at % 2}B")
        miles_run(tmp_path, f"r{at:02}", float(0.015 * np.exp(noise)), config=model)
    loaded = load_settings(cwd=tmp_path, environ={}, flags={"store": str(tmp_path / "s.db")})
    run_sync(Job(loaded, sources=(str(tmp_path),), clock=lambda: NOW, html=tmp_path / "page.html"))

    [told] = run("ranges", "--json", "--store", "s.db", cwd=tmp_path).document["goodness_of_fit"]
    [witness] = s0.goodness_of_fit(s0.load_runs(tmp_path)).reset_index().to_dict("records")
    assert witness["n"] == 12
    assert told.pop("gap_metric") == witness.pop("gap_metric") == METRIC
    assert {name: float(value) for name, value in told.items()} == pytest.approx(witness, rel=1e-9)

    line = f"{METRIC}: the gaps of 12 runs scatter as ranges assume, as far as so few can tell"
    assert f"fit     {line}" in run("ranges", "--store", "s.db", cwd=tmp_path, COLUMNS="200").out
    assert "fit  " not in run("ranges", "--setup", "no such", "--store", "s.db", cwd=tmp_path).out
    assert line in (tmp_path / "page.html").read_text()


@pytest.mark.parametrize(
    ("fit", "said"),
    [
        (FITS, "the gaps of 212 runs scatter as ranges assume, 3 of them in the outermost 1 % (expected: 2)"),
        (
            GoodnessOfFit(METRIC, 1500, 9.1, 0.01, 0.04, 0.02, 0.1, 3.3, 0.8, 6.0, 0.02),
            (
                "the gaps of 1,500 runs do not scatter as ranges assume, 30 of them in the outermost 1 % (expected: 15)"
                "; ranges are wider for it"
            ),
        ),
        (
            GoodnessOfFit(METRIC, 0, None, None, None, None, 0.5, np.inf, 1.0, 4.0, 0.03),
            "no two runs share a setup yet, so that nothing is known of how their gaps scatter",
        ),
    ],
)
def test_a_fit_is_said_in_one_line(fit, said):
    assert str(fit) == f"{METRIC}: {said}"


def test_a_kept_fit_is_plain_json_and_comes_back_as_it_was():
    unknown = GoodnessOfFit(None, 0, None, None, None, None, None, np.inf, 1.0, 4.0, 0.03)
    table = pd.DataFrame([FITS, unknown]).astype({"p_value": float}).set_index("gap_metric")
    with Store.open(NOWHERE, mode="copy") as store:
        assert load_goodness(store) == ()
        save_goodness(store, goodness_rows(table))
        assert load_goodness(store) == (FITS, unknown)
        json.dumps(store.notes.get("goodness_of_fit"), allow_nan=False)
