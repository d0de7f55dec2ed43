"""One module for each part of the schema; importing this package registers all of them."""

from tests.support.wandb_server.gql import RESOLVERS

from . import accounts, alerts, artifact_writing, artifacts, runs, views, writing

__all__ = [
    "RESOLVERS",
    "accounts",
    "alerts",
    "artifact_writing",
    "artifacts",
    "runs",
    "views",
    "writing",
]
