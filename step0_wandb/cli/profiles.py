"""``step0-wandb profiles``: the frameworks known, and what is read of each."""

from __future__ import annotations

from step0_wandb import documents
from step0_wandb.cli import output
from step0_wandb.cli.session import Session, without  # noqa: TC001 - typer reads the annotation


@without("dry_run", "fail_on", "log_format")
def profiles(session: Session) -> None:
    """List the frameworks that are known, and what is read of each.

    Example: step0-wandb profiles
    """
    known = session.profiles.by_name.values()
    if session.as_json:
        rows = [
            {
                "name": profile.name,
                "title": profile.title,
                "ppo_kl": list(profile.metrics.ppo_kl),
                "clip_frac": list(profile.metrics.clip_frac),
                "gap": [gap.metric for gap in profile.metrics.gap],
                "step": list(profile.step.keys),
            }
            for profile in known
        ]
        output.print_json(documents.document("profiles", profiles=rows))
        return
    table = output.table_of("profile", "ppo_kl", "clip_frac", "gap", "step")
    for profile in known:
        metrics = profile.metrics
        columns = (metrics.ppo_kl, metrics.clip_frac, [gap.metric for gap in metrics.gap], profile.step.keys)
        table.add_row(profile.name, *("\n".join(names) or "-" for names in columns))
    output.console().print(table)
