"""The HTML page: one file, no script, no network."""
