"""Is it real, how stable is it, and does it hold on other rows: everything that resamples."""

from standout.inference.held_out import HeldOut, held_out_ratio
from standout.inference.permutation import PermutationTest, permutation_test
from standout.inference.replicates import ReplicateFinding, find_replicates
from standout.inference.stability import FeatureStability, Stability, stability
from standout.inference.trust import Trust, assess, replicates_of

__all__ = [
    "FeatureStability",
    "HeldOut",
    "PermutationTest",
    "ReplicateFinding",
    "Stability",
    "Trust",
    "assess",
    "find_replicates",
    "held_out_ratio",
    "permutation_test",
    "replicates_of",
    "stability",
]
