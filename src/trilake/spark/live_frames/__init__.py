"""Frames that show the newest version of their tables whenever they are used.

In comes a function that reads a table, and the version that it has read (:func:`~.versions.note_version`); out goes
Spark's own frame, made to follow the table (:func:`~.frames.following`), and so is what is made of it.  This room knows
neither formats nor SQL.

::

    versions    which version a read shows, and how a newer one is found
    templates   plans of the JVM with slots in place of tables, and the plans that fill them
    columns     what must stay of a table's columns
    frames      a frame is a template and what fills it; each use fills it with the newest versions
    connect     the same over Spark Connect, where a plan is sent for each use
    mode        whether frames of a session follow: the setting, and one probe
"""
