"""What is built and shipped: the image's commands, the extras, and what the source distribution holds."""

import re
import tomllib

from tests.docs.pages import ROOT, blocks

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def test_the_image_installs_with_the_commands_of_the_readme():
    dockerfile = (ROOT / "Dockerfile").read_text(encoding="utf-8")
    [line] = [line for line in dockerfile.splitlines() if "pip install" in line]
    told = next(
        line
        for block in blocks(ROOT / "README.md", "sh")
        for line in block.splitlines()
        if "venv .venv" in line
    )
    assert told.rpartition(" && ")[0] in line
    assert re.search(r"^USER step0$", dockerfile, re.MULTILINE)
    assert 'ENTRYPOINT ["step0-wandb"]' in dockerfile


def test_the_lock_pins_every_dependency_and_names_no_index():
    lock = (ROOT / "requirements.lock").read_text(encoding="utf-8")
    pinned = set(re.findall(r"^([a-z0-9-]+)==", lock, re.MULTILINE))
    extras = PROJECT["project"]["optional-dependencies"].values()
    needed = [name for names in (PROJECT["project"]["dependencies"], *extras) for name in names]
    assert {re.match(r"[a-z0-9-]+", name)[0] for name in needed} <= pinned
    assert "://" not in lock


def test_the_source_distribution_holds_what_the_package_names():
    shipped = PROJECT["tool"]["hatch"]["build"]["targets"]["sdist"]["include"]
    assert [path for path in shipped if not (ROOT / path.strip("/")).exists()] == []
    assert "/docs" in shipped
