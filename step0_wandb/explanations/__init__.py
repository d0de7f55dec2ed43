"""Why a run got its verdict: known causes, and what differs from its healthy peers."""
