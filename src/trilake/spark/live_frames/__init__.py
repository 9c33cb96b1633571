"""DataFrames that always show the newest version of their tables.

The caller passes a function that reads a table and notes the ``ReadVersion``.
:func:`~.frames.following` returns a Spark DataFrame that follows the table, as do all DataFrames derived from it.  This
package depends neither on formats nor on SQL.

::

    versions    which version a read shows, how to find a newer one, and whether it has the same columns
    templates   JVM plans with slots in place of tables, and how to fill them
    frames      a DataFrame is a template; each use fills it with the newest versions
    connect     the same for Spark Connect, where each use sends a plan
"""
