"""Lists of installed packages: read as pip and the wandb client write them, compared by what matters."""

import pytest

from step0_wandb.text.requirements import changes, read_requirements


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("sglang==0.5.16", {"sglang": "0.5.16"}),
        ("Transformer_Engine==2.9.0+cu128", {"transformer-engine": "2.9.0+cu128"}),
        ("zope.interface == 7.1 ; python_version > '3.8'", {"zope-interface": "7.1"}),
        ("sglang[all]==0.5.9  # pinned", {"sglang": "0.5.9"}),
        ("torch===2.9.1", {"torch": "2.9.1"}),
        ("sglang @ git+https://user:secret@host/sglang.git@v0.5.9#subdirectory=python", {"sglang": "v0.5.9"}),
        ("flash_attn @ file:///wheels/flash_attn-2.8.3.whl", {"flash-attn": "flash_attn-2.8.3.whl"}),
        ("-e git+https://host/miles.git@08752a1#egg=miles", {"miles": "08752a1"}),
        ("pkg @ https://token@host", {"pkg": "from an address"}),
        ("pkg @ http://[", {"pkg": "from an address"}),
        ("# a comment==1", {}),
        ("", {}),
        ("-r other.txt", {}),
        ("torch>=2.0", {}),
        ("torch", {}),
        ("\x1b[31m==1", {}),
    ],
)
def test_a_line_gives_a_normalized_name_and_a_version_without_secrets(line, found):
    assert read_requirements(line) == found


def test_a_version_is_never_longer_than_a_line_of_text():
    assert len(read_requirements("torch==" + "9" * 10_000)["torch"]) == 60


def test_packages_that_compute_log_probs_come_first_then_those_below_them():
    names = [
        "zlib",
        "nvidia-nccl-cu12",
        "megatron-core",
        "torch",
        "apex-like",
        "sglang",
        "xformers",
        "aiohttp",
    ]
    told = changes(dict.fromkeys(names, "1"), dict.fromkeys(names, "2"))
    assert [text.split()[0] for text in told] == [
        "sglang", "torch", "megatron-core", "xformers", "nvidia-nccl-cu12", "aiohttp", "apex-like", "zlib",
    ]  # fmt: skip


def test_what_only_one_side_has_is_called_not_installed():
    assert changes({"xformers": "0.0.27"}, {"deep-gemm": "2.0"}) == (
        "deep-gemm not installed -> 2.0",
        "xformers 0.0.27 -> not installed",
    )


def test_equal_lists_differ_in_nothing():
    assert changes({"torch": "2.9"}, {"torch": "2.9"}) == ()
