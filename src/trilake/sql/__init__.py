"""SQL over trilake tables: the session's own ``spark.sql`` after ``install``, and ``trilake.sql`` without Spark.

Spark's parser judges what it knows; what only Delta's grammar knows has a small grammar here.  Names of our tables are
replaced by frames, commands run through the code of the Python interface, and every other statement stays as it was.

"""
