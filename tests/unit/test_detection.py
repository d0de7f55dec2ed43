"""The benchmark of detection, small: one framework a part; `tests.benchmarks.detection` runs them all."""

from dataclasses import replace

import pytest

from step0_wandb.profiles import load_profiles
from step0_wandb.records import ALPHA, BOUND_DEFAULTS
from step0_wandb.settings.options import BoundsSettings
from step0_wandb.step0.finder import Step0Finder
from step0_wandb.verdicts.judge import weigh
from tests.benchmarks import detection
from tests.support.observed import CONFIGS, FINDER, healthy_row, record

PROFILES = FINDER.profiles.by_name


def test_every_fault_that_a_framework_logs_is_caught():
    found = {title: verdict for title, verdict, _ in detection.caught(PROFILES["prime_rl"])}
    assert found["LoRA gradients x100"] == "suspect"
    assert len(found) > 8
    assert set(found.values()) == {"broken", "suspect"}


def test_no_legal_way_to_run_is_flagged():
    assert not detection.false_alarms(PROFILES["openrlhf"])


def test_healthy_runs_of_a_fleet_stay_within_the_budget_and_odd_ones_are_found():
    assert detection.share_flagged(3, 100) <= detection.MOST_FLAGGED
    assert detection.share_found("entropy x3", 5, 50) == 1


def test_a_larger_budget_flags_more():
    runs = detection.fleet(20, 6, detection.np.random.default_rng(1))
    runs.loc[5, "observed.learned:entropy"] *= 1.55
    few, many = (
        weigh(runs, observables_alpha=alpha).outcomes["learned:entropy"].level[5] for alpha in (1e-12, ALPHA)
    )
    assert (few, many) == (0, 1)


@pytest.mark.parametrize(("check", "factor"), [("learned:reward", 0.1), ("learned:grad_norm", 12.0)])
def test_two_retries_of_a_broken_launch_accuse_no_healthy_run(check, factor):
    runs = detection.fleet(12, 7, detection.np.random.default_rng(4))
    odd = runs.index % 7 >= 5
    runs.loc[odd, f"observed.{check}"] *= factor
    flagged = weigh(runs).outcomes[check].level > 0
    assert not flagged[~odd].any()
    assert flagged[odd].mean() > 0.5


def test_a_fleet_whose_setups_scatter_widely_stays_within_the_budget(monkeypatch):
    wide = {name: 4 * spread for name, spread in detection.SPREADS.items()}
    monkeypatch.setattr(detection, "SPREADS", wide)
    assert detection.share_flagged(3, 100) <= detection.MOST_FLAGGED


# ── bounds as settings ──────────────────────────────────────────────────────


def test_the_settings_know_every_bound_with_its_default():
    assert BoundsSettings().by_statistic() == BOUND_DEFAULTS


@pytest.mark.parametrize(
    ("name", "metric", "statistic", "bound", "value"),
    [
        ("skyrl", "policy/rollout_train_logprobs_abs_diff_mean", "mean-abs", 0.8, 0.6),
        ("prime_rl", "mismatch_kl/all/mean", "k3", 1.0, 0.6),
        ("verl", "training/rollout_actor_probs_pearson_corr", "pearson", 0.8, 0.85),
        ("verl", "rollout_corr/chi2_token", "chi2", 2.0, 1.5),
    ],
)
def test_a_bound_that_is_moved_moves_the_verdict(name, metric, statistic, bound, value):
    row = healthy_row(PROFILES[name]) | {metric: value}
    run = record("odd", row, CONFIGS[name])
    moved = Step0Finder(load_profiles().with_setups({}, bounds=BOUND_DEFAULTS | {statistic: bound}))
    assert moved.profiles.fingerprint != FINDER.profiles.fingerprint
    check = f"bound:{statistic}"
    assert _level(FINDER, run, check) == 2
    assert _level(moved, run, check) < 2
    assert _level(moved, replace(run, rows=record("x", row | {metric: 9.0}, {}).rows), check) == (
        2 if statistic != "pearson" else 0
    )


def _level(finder, run, check):
    from step0_wandb.store.columns import columns_of, frame_of

    return weigh(frame_of([columns_of(run, finder.facts(run))])).outcomes[check].level[0]
