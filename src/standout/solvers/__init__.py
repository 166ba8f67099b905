"""Solve the generalized eigenproblem of target against background."""
