"""Read datasets and write results: files, arrays in memory, missing values, checkpoints, model files."""
