"""What the rounded numbers of a log can prove, and what they cannot."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from step0_wandb.records import Rule
from step0_wandb.text.formatting import number

if TYPE_CHECKING:
    from collections.abc import Mapping

    from step0_wandb.records import RunFacts
    from step0_wandb.step0.finder import Step0Finder

COARSE = 0.1
"""A gap whose print may be this share off its value cannot be held against a range."""


def rounded(facts: RunFacts, resolution: Mapping[str, float], finder: Step0Finder) -> RunFacts:
    """Return facts whose checks are skipped where a rounded value cannot decide them.

    A value printed as 0.000 lies within 0.0005: it cannot prove 1e-9, but 0.300 is surely above it.
    """
    plan, step0 = facts.plan, facts.step0
    if plan is None or step0.profile is None or not resolution:
        return facts
    metrics = finder.profiles.by_name[step0.profile].metrics
    steps = {
        "ppo_kl": next((resolution[name] for name in metrics.ppo_kl if name in resolution), 0.0),
        "clip_frac": next((resolution[name] for name in metrics.clip_frac if name in resolution), 0.0),
        "gap": resolution.get(step0.gap_metric or "", 0.0),
    }
    return replace(
        facts,
        plan=replace(
            plan,
            ppo_kl=_rule(plan.ppo_kl, step0.ppo_kl, steps["ppo_kl"]),
            clip_frac=_rule(plan.clip_frac, step0.clip_frac, steps["clip_frac"]),
            gap=_gap_rule(plan.gap, step0.gap, steps["gap"]),
        ),
    )


def _rule(rule: Rule, value: float | None, step: float) -> Rule:
    if value is None or not step:
        return rule
    if rule.kind == "averaged":
        return replace(rule, why=f"{rule.why}; this log could not prove it either: {_said(step)}")
    limit = rule.limit
    if limit is None or abs(value) - step / 2 > limit or abs(value) + step / 2 <= limit:
        return rule
    return Rule("skipped", why=f"{_said(step)}, which cannot prove {number(limit)}")


def _gap_rule(rule: Rule, value: float | None, step: float) -> Rule:
    if value is None or not step or rule.kind not in ("range", "zero"):
        return rule
    if rule.kind == "zero" and abs(value) > step / 2:
        return rule
    if rule.kind == "range" and abs(value) * COARSE >= step / 2:
        return rule
    return Rule("skipped", why=f"{_said(step)}, too coarse for a gap of {number(value)}")


def _said(step: float) -> str:
    return f"this log is rounded to {step:g}"
