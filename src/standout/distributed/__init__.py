"""Rows on a cluster: Dask and Spark collections as sources."""
