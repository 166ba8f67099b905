"""Damaged and hostile files, read in child processes: ``python -m fuzz``. Not part of the installed package."""
