"""What one project is to show: tables, report and state, each with the fingerprint of what it says."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from step0_wandb.publish.wandb.report import as_json, build_report
from step0_wandb.publish.wandb.state import export_state, fingerprint
from step0_wandb.publish.wandb.tables import Tables, count_metrics, runs_table, setups_table
from step0_wandb.store.kept import load_findings, load_weight_checks

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime

    from step0_wandb.publish.wandb.report import Report
    from step0_wandb.publish.wandb.state import State
    from step0_wandb.publish.wandb.target import Target
    from step0_wandb.records import JudgedRun
    from step0_wandb.store import Store

STATE: Final = "state"
"""The part that other machines read; it tells of the other parts, and so goes with them."""


@dataclass(frozen=True)
class Content:
    """What a store has to say to one project.

    Attributes
    ----------
    runs : sequence of JudgedRun
        Those of the project.
    tables : Tables or None
        As `report`, None where the project shows neither.
    marks : mapping of str to str
        The fingerprint of each part.
    """

    runs: Sequence[JudgedRun]
    state: State
    tables: Tables | None
    report: Report | None
    marks: Mapping[str, str]

    @classmethod
    def of(cls, store: Store, target: Target, runs: Sequence[JudgedRun], *, now: datetime) -> Content:
        """Return the content for one project; `runs` are those of the whole store."""
        own = [run for run in runs if target.scope.has(run.run)]
        state = export_state(store, target.scope, own, now=now)
        tables = report = None
        marks = {STATE: state.fingerprint()} if target.shares else {}
        if target.shows:
            tables = Tables(
                {"runs": runs_table(own), "setups": setups_table(state.ranges)},
                count_metrics(own, state.ranges),
            )
            report = _report(store, target, own, state, now=now)
            marks["tables"] = fingerprint(tables.document())
            marks["report"] = fingerprint([as_json(block) for block in report.body])
        return cls(own, state, tables, report, marks)

    def news(self, known: Mapping[str, str], *, force: bool) -> set[str]:
        """Return the parts that differ from the fingerprints known, or all of them.

        A project without runs gets nothing unless it is asked for.
        """
        if not self.runs and not force:
            return set()
        found = {part for part, mark in self.marks.items() if force or mark != known.get(part)}
        return found | (self.marks.keys() & {STATE}) if found else found


def _report(
    store: Store, target: Target, runs: Sequence[JudgedRun], state: State, *, now: datetime
) -> Report:
    as_of = store.notes.changed_at or now
    checks = load_weight_checks(store)
    weights = [entry for entry in checks if any(map(target.scope.has_project, entry.projects))]
    return build_report(runs, state.ranges, as_of=as_of, weights=weights, causes=load_findings(store))
