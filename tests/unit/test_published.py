import pytest

from step0_wandb.profiles import load_profiles
from step0_wandb.verdicts.reference_gaps import PublishedGap, _catalog, published_for

RANGE = PublishedGap(profile="miles", model="M", low=0.0148, high=0.0157, runs=17, source="a guide")
SINGLE = PublishedGap(profile="miles", model="M", low=0.0136, source="a guide")


@pytest.mark.parametrize(
    ("known", "gap", "says"),
    [
        (RANGE, 0.0151, "published: 0.0148 to 0.0157 (17 runs, a guide): inside"),
        (RANGE, 0.0148, "published: 0.0148 to 0.0157 (17 runs, a guide): inside"),
        (RANGE, 0.0471, "published: 0.0148 to 0.0157 (17 runs, a guide): x3.0 the largest"),
        (RANGE, 0.0074, "published: 0.0148 to 0.0157 (17 runs, a guide): x0.50 the smallest"),
        (RANGE, None, "published: 0.0148 to 0.0157 (17 runs, a guide)"),
        (SINGLE, 0.0136, "published: 0.0136 (a guide): x1.00"),
        (SINGLE, 0.0680, "published: 0.0136 (a guide): x5.0"),
    ],
)
def test_a_published_value_stands_beside_a_gap_in_words(known, gap, says):
    assert known.describe(gap) == says


@pytest.mark.parametrize(
    ("setup", "lows"),
    [
        ("miles · Qwen3-0.6B", [0.0148]),
        ("miles · qwen3-0.6b", [0.0148]),
        ("miles · Qwen3-0.6B · top_p=0.95 top_k=64", [0.0136]),
        ("miles · Qwen3-0.6B · top_k=64 top_p=0.95", [0.0136]),
        ("miles · Qwen3-1.7B", [0.0109]),
        ("miles · Qwen3-0.6B · top_p=0.95", []),
        ("miles · Qwen3-0.6B · engine=fp8", []),
        ("slime · Qwen3-0.6B", []),
        ("verl · Qwen3-0.6B · rollout_corr/k3_kl", []),
        ("miles · model?", []),
        ("miles", []),
        ("", []),
        (None, []),
    ],
)
def test_published_values_belong_to_one_model_and_one_sampler(setup, lows):
    assert [known.low for known in published_for(setup)] == lows


def test_every_published_value_is_below_its_profile_s_ceiling_or_says_why_not():
    profiles = load_profiles().by_name
    for known in _catalog().published:
        ceiling = profiles[known.profile].metrics.gap[0].ceiling
        parts = {part.split("=")[0] for part in known.parts}
        assert known.source
        assert known.high is None or known.high > known.low
        assert (
            ceiling is None or known.low <= ceiling or parts & {"engine", "trainer", "lora", "quantization"}
        )


def test_every_setup_part_is_one_that_its_profile_s_labels_can_have():
    profiles = load_profiles().by_name
    for known in _catalog().published:
        labels = {key.label for key in profiles[known.profile].setup}
        assert {part.split("=")[0] for part in known.parts} <= labels
