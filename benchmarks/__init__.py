"""Benchmarks: time ratios within one run on one machine, against bare linear algebra and other packages."""
