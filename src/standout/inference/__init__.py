"""Inference by resampling: significance, held-out ratio and stability of components, and replicates among rows."""

from standout._replicates import ReplicateFinding, find_replicates
from standout.inference.assess import Assessment, assess
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
    "stability",
]
