"""What each command does, one module a command; `cli` parses and prints."""
