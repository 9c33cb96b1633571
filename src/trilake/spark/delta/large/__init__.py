"""Commands on Delta tables of very many files as Spark jobs: the driver holds counts, and what changed lately."""
