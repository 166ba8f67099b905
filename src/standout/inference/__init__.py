"""Is it real, how stable is it, and does it hold on other rows: everything that resamples."""

from standout.inference.assess import Assessment, ReplicateFinding, assess, find_replicates, replicates_of
from standout.inference.held_out import HeldOut, held_out_ratio
from standout.inference.permutation import PermutationTest, permutation_test
from standout.inference.stability import FeatureStability, Stability, stability

__all__ = [
    "Assessment",
    "FeatureStability",
    "HeldOut",
    "PermutationTest",
    "ReplicateFinding",
    "Stability",
    "assess",
    "find_replicates",
    "held_out_ratio",
    "permutation_test",
    "replicates_of",
    "stability",
]
