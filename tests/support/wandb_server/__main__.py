"""Start the double by hand: ``python -m tests.support.wandb_server --port 0``."""

from __future__ import annotations

import argparse
import sys
import threading

from .server import WandbServer


def main() -> None:
    """Serve until Ctrl-C; print the two variables that the wandb client needs."""
    parser = argparse.ArgumentParser(description="A W&B server for tests, on loopback.")
    parser.add_argument("--port", type=int, default=0, help="0 takes a free one")
    with WandbServer(port=parser.parse_args().port) as server:
        sys.stdout.write(f"export WANDB_BASE_URL={server.url}\nexport WANDB_API_KEY={server.api_key}\n")
        sys.stdout.flush()
        try:
            threading.Event().wait()
        except KeyboardInterrupt:
            return


if __name__ == "__main__":
    main()
