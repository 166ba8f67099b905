"""Solve the generalised eigenproblem of target against background."""
