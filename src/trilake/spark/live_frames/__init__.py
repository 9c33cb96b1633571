"""DataFrames that always show the newest version of their tables.

The caller passes a function that reads a table and records the version with :func:`~.versions.note_version`.
:func:`~.frames.following` returns a Spark DataFrame that follows the table, as do all DataFrames derived from it.  This
package depends neither on formats nor on SQL.

::

    versions    which version a read shows, and how to find a newer one
    templates   JVM plans with slots in place of tables, and how to fill them
    columns     check that a newer version still has a DataFrame's columns
    frames      a DataFrame is a template; each use fills it with the newest versions
    connect     the same for Spark Connect, where each use sends a plan
    mode        whether the DataFrames of a session follow: the setting and a probe
"""
