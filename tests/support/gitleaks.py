"""Writes ``step0_wandb/text/gitleaks.toml`` again, from gitleaks' own configuration.

``python -m tests.support.gitleaks path/to/config/gitleaks.toml > step0_wandb/text/gitleaks.toml``
"""

from __future__ import annotations

import json
import re
import sys
import tomllib
from pathlib import Path

HEAD = """\
# The rules of gitleaks that know a key by its look alone: from config/gitleaks.toml of 2026-07-22, commit b58d3f10.
# Copyright (c) 2019 Zachary Rice, MIT License (gitleaks.LICENSE). Written by tests/support/gitleaks.py, which changes
# the regexes into Python's, and lets a key end before any character that is no part of a word.
"""
LEFT_OUT = {
    "curl-auth-header", "curl-auth-user", "facebook-access-token", "freemius-secret-key", "generic-api-key",
    "jwt-base64", "kubernetes-secret-yaml", "nuget-config-password", "private-key", "sourcegraph-access-token",
    "twilio-api-key",
}  # fmt: skip
"""They need what stands around, may take long, or mean hashes too."""
BY_NAME = re.compile(r"(\(\?i\))?\[\\w\.-\]\{0,50\}\?")
"""So begins a rule that looks for a name; names are our own part."""
END = re.compile(r"\(\?:\[\\x60'\"\\s;\]\|\\\\\[nr\]\|\$(\|\\b)?\)$|\(\?:\[\^[^\]]*\]\|\\z\)$")


def main(path: str) -> None:
    """Print the rules."""
    rules = tomllib.loads(Path(path).read_text(encoding="utf-8"))["rules"]
    tables = [HEAD]
    for rule in rules:
        regex = rule.get("regex", "")
        if not regex or rule["id"] in LEFT_OUT or BY_NAME.match(regex):
            continue
        lines = ["[[rules]]", f'id = "{rule["id"]}"', f"regex = '''{in_python(regex)}'''"]
        lines.append(f"keywords = {json.dumps(rule['keywords'])}")
        if "entropy" in rule:
            lines.append(f"entropy = {rule['entropy']}")
        tables.append("\n".join(lines) + "\n")
    sys.stdout.write("\n".join(tables))


def in_python(regex: str) -> str:
    """Return a regex of Go for Python: its (?i) holds to the end of the group, Python's for the whole."""
    regex = END.sub(r"(?!\\w)", regex)
    for theirs, ours in (("[[:alnum:]]", "[0-9A-Za-z]"), (r"\z", r"\Z"), (r"\x60", "`")):
        regex = regex.replace(theirs, ours)
    while (at := regex.find("(?i)", 1)) > 0:
        end = end_of_group(regex, at + 4)
        regex = f"{regex[:at]}(?i:{regex[at + 4 : end]}){regex[end:]}"
    re.compile(regex)
    return regex


def end_of_group(regex: str, at: int) -> int:
    """Return where the group ends that `at` is in."""
    depth = 0
    for sign in re.finditer(r"\\.|\[(?:\\.|[^\]])*\]|[()]", regex[at:]):
        depth += (sign[0] == "(") - (sign[0] == ")")
        if depth < 0:
            return at + sign.start()
    return len(regex)


if __name__ == "__main__":
    main(sys.argv[1])
