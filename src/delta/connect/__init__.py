"""``delta.connect``: the names of delta-spark's client for Spark Connect, whose sessions need no other classes here."""
