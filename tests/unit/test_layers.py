"""The layout is the way of the data: imports point down only."""

import ast
from pathlib import Path

import step0_wandb

PACKAGE = Path(step0_wandb.__file__).parent

LAYERS = [
    ["errors"],
    ["records"],
    ["text"],
    ["settings"],
    ["profiles"],
    ["checks"],
    ["step0"],
    ["ranges"],
    ["verdicts"],
    ["wandb_api"],
    ["sources"],
    ["store"],
    ["explanations"],
    ["plots"],
    ["publish"],
    ["app"],
    ["demo"],
    ["cli"],
    ["__main__"],
]
HEIGHT = {name: height for height, names in enumerate(LAYERS) for name in names}


def part_of(path):
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imported_parts(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("step0_wandb"):
            parts = node.module.split(".")
            yield from [parts[1]] if len(parts) > 1 else [alias.name for alias in node.names]
        elif isinstance(node, ast.Import):
            yield from (a.name.split(".")[1] for a in node.names if a.name.startswith("step0_wandb."))


MODULES = sorted(path for path in PACKAGE.rglob("*.py") if path != PACKAGE / "__init__.py")


def test_a_module_imports_only_what_lies_below_it():
    upwards = [
        f"{path.relative_to(PACKAGE)} imports {name}"
        for path in MODULES
        for own in [part_of(path)]
        for name in imported_parts(path)
        if name != own and name in HEIGHT and HEIGHT[name] >= HEIGHT[own]
    ]
    assert upwards == []


def test_every_part_of_the_package_has_its_layer():
    parts = {part_of(path) for path in MODULES}
    assert parts <= set(HEIGHT)


def test_no_module_reads_the_environment_but_settings():
    readers = {path for path in MODULES if "os.environ" in path.read_text() or "getenv" in path.read_text()}
    assert readers == {PACKAGE / "settings" / "load.py"}
