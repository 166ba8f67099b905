"""The experiments of the paper, at reduced size."""
