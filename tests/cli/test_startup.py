"""Help and version answer at once: nothing heavy is imported for them."""

import subprocess
import sys

import pytest

from tests.support.command import run

HEAVY = (
    "wandb",
    "pandas",
    "numpy",
    "scipy",
    "matplotlib",
    "jinja2",
    "sqlalchemy",
    "requests",
    "alembic",
)


@pytest.mark.parametrize("words", ["['--help']", "['--version']", "['sync', '--help']"])
def test_nothing_heavy_is_imported_to_answer(words):
    program = (
        "import sys, step0_wandb.cli.app as app; "
        f"code = app.run({words}); "
        f"print([name for name in {HEAVY!r} if name in sys.modules]); sys.exit(code)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


def test_the_commands_load_no_settings():
    """Typer itself loads pydantic once an option is read; before that, nothing needs it."""
    program = "import sys, step0_wandb.cli.app; print('pydantic' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


def test_importing_the_package_prints_nothing_and_imports_nothing_heavy():
    program = f"import sys, step0_wandb; print([name for name in {HEAVY!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("[]\n", "")


def test_the_public_names_are_there_and_load_when_used():
    import step0_wandb as s0

    assert all(callable(getattr(s0, name)) for name in s0.__all__ if name != "__version__")
    with pytest.raises(AttributeError, match="no attribute 'judges'"):
        _ = s0.judges


def test_a_second_sync_without_news_needs_neither_pandas_nor_scipy(tmp_path):
    from tests.support.miles import miles_run

    miles_run(tmp_path, "a")
    assert run("sync", ".", "--store", "s.db", cwd=tmp_path).code == 0
    program = (
        "import sys, step0_wandb.cli.app as app; app.run(['sync', '.', '--store', 's.db', '-q']); "
        "print([name for name in ('wandb', 'pandas', 'numpy', 'scipy', 'matplotlib', 'jinja2', 'requests', 'alembic') "
        "if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines()[-1] == "[]"


@pytest.mark.parametrize(
    "command",
    [
        "sync",
        "check",
        "runs",
        "ranges",
        "explain",
        "label",
        "accept",
        "report",
        "demo",
        "settings",
        "profiles",
    ],
)
def test_every_command_has_a_help_with_an_example(tmp_path, command):
    answer = run(command, "--help", cwd=tmp_path)
    assert answer.code == 0
    assert f"Example: step0-wandb {command}" in " ".join(answer.out.split())


def test_an_interrupt_while_the_program_loads_prints_no_traceback():
    code = (
        "import sys, builtins; real = builtins.__import__\n"
        "def stop(name, *rest, **more):\n"
        "    if name == 'typer': raise KeyboardInterrupt\n"
        "    return real(name, *rest, **more)\n"
        "builtins.__import__ = stop\n"
        "from step0_wandb.cli import main; main(['--version'])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


def test_an_interrupt_that_a_finalizer_swallows_is_raised_again():
    code = (
        "import signal, sys, time; from step0_wandb.cli import app\n"
        "class Late:\n"
        "    def __del__(self): raise KeyboardInterrupt\n"
        "def run(words):\n"
        "    try:\n"
        "        Late(); time.sleep(5)\n"
        "    except KeyboardInterrupt: return 130\n"
        "    return 0\n"
        "app.run = run; app.main(['--version'])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (130, "")
