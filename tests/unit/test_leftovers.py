"""What a write that was ended by a signal may leave in the folder of temporary files."""

import os
import time

from step0_wandb.publish.wandb.process import remove_leftovers


def aged(path, hours):
    then = time.time() - 3600 * hours
    os.utime(path, (then, then), follow_symlinks=False)


def test_only_folders_that_no_write_can_own_any_more_are_removed(tmp_path):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "kept.txt").touch()
    for name, hours in (("step0-wandb-old", 25), ("step0-wandb-now", 23), ("other-old", 25)):
        folder = tmp_path / name
        folder.mkdir()
        (folder / "file").touch()
        aged(folder, hours)
    (tmp_path / "step0-wandb-file").touch()
    aged(tmp_path / "step0-wandb-file", 25)
    (tmp_path / "step0-wandb-link").symlink_to(elsewhere)
    aged(tmp_path / "step0-wandb-link", 25)
    remove_leftovers(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "elsewhere",
        "other-old",
        "step0-wandb-file",
        "step0-wandb-link",
        "step0-wandb-now",
    ]
    assert (elsewhere / "kept.txt").exists()
