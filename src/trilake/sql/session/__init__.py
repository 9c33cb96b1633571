"""What a statement asks of the session: Spark's parser, names, frames, results."""
