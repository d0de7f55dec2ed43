"""Where runs come from: each source turns what it finds into records."""
