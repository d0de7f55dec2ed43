"""A launch before it runs: a script, a command line or a config file, read and never executed."""
