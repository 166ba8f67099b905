"""Solving: the generalized eigenproblem of target against background, by the solver that fits."""

from standout.solve.choose import check_rows, solve
from standout.solve.result import Note, Solution
from standout.solve.task import Wanted

__all__ = ["Note", "Solution", "Wanted", "check_rows", "solve"]
