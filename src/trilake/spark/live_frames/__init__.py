"""Frames that always show the newest version of their tables.

A caller passes a function that reads a table and notes the version that it read (:func:`~.versions.note_version`).  It
gets a Spark DataFrame that follows the table (:func:`~.frames.following`), and so does everything derived from it.
This package depends neither on formats nor on SQL.

::

    versions    which version a read shows, and how to find a newer one
    templates   JVM plans with slots in place of tables, and how to fill them
    columns     check that a newer version still has a frame's columns
    frames      a frame is a template; each use fills it with the newest versions
    connect     the same for Spark Connect, where each use sends a plan
    mode        whether the frames of a session follow: the setting and a probe
"""
