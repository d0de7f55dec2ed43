"""How each framework names its metrics, step and config keys: one TOML file a framework."""

from step0_wandb.profiles.catalog import Profiles, load_profiles
from step0_wandb.profiles.load import load_profile
from step0_wandb.profiles.profile import Profile

__all__ = ["Profile", "Profiles", "load_profile", "load_profiles"]
