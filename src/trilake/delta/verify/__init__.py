"""Whether a Delta table keeps the protocol's promises: a file a kind of promise, a row a promise in ``run.py``."""
