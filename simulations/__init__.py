"""Simulations: do tests reject as often as they say, and do intervals cover what they say they cover."""
