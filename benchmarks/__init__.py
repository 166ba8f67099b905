"""Benchmarks: ratios measured in one run on one machine, against bare algebra and against peers."""
