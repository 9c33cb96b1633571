"""Types ``geometry`` and ``geography``: values are WKB, and the type says what their coordinates mean.

The protocol names a coordinate reference system and, for geographies, how edges between points run:
``geometry(EPSG:3857)``, ``geography(OGC:CRS84, SPHERICAL)``.  What is left out has a default.
"""

from __future__ import annotations

import re

DEFAULT_CRS, DEFAULT_ALGORITHM = "OGC:CRS84", "SPHERICAL"
ALGORITHMS = ("SPHERICAL", "VINCENTY", "THOMAS", "ANDOYER", "KARNEY")
#: The reference system of values that each have their own: no column of a table may be of it.
MIXED_CRS = "SRID:ANY"
#: What Spark's SQL says for a reference system.
_CRS_OF_SRID = {"0": "SRID:0", "3857": "EPSG:3857", "4326": "OGC:CRS84", "any": MIXED_CRS}
_TYPE = re.compile(r"(geometry|geography)(?:\(\s*(?:(\w+:-?\w+)(?:\s*,\s*(\w+))?|([A-Za-z]\w*))\s*\))?")


def spatial_name(name: str) -> str | None:
    """The full name of a spatial type of the protocol; ``None`` for another type.

    >>> spatial_name("geometry"), spatial_name("geography(vincenty)"), spatial_name("geometry(x)")
    ('geometry(OGC:CRS84)', 'geography(OGC:CRS84, VINCENTY)', None)
    """
    m = _TYPE.fullmatch(name)
    if m is None:
        return None
    crs, algorithm = m[2] or DEFAULT_CRS, m[3] or m[4]
    if m[1] == "geometry":
        return f"geometry({crs})" if algorithm is None else None
    algorithm = (algorithm or DEFAULT_ALGORITHM).upper()
    return f"geography({crs}, {algorithm})" if algorithm in ALGORITHMS else None


def is_mixed(name: str) -> bool:
    """Whether a spatial type, by its full name, leaves the reference system to each value."""
    return MIXED_CRS in name.upper()


def name_of_srid(word: str, parameters: str) -> str:
    """The protocol's name of a type as SQL spells it: with Spark's number of a reference system, or with its name.

    >>> name_of_srid("geometry", "4326"), name_of_srid("geometry", "EPSG:3857")
    ('geometry(OGC:CRS84)', 'geometry(EPSG:3857)')
    """
    return f"{word}({_CRS_OF_SRID.get(parameters.lower(), parameters)})" if parameters else word
