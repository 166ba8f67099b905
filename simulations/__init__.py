"""Simulations of the size and power of the tests and the coverage of the intervals."""
