"""Files as sources: one module for each kind, all of them read in blocks."""
