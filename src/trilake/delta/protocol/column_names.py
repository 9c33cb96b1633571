"""Lists of column names, as properties and arguments spell them."""

from __future__ import annotations


def split_names(text: str) -> list[tuple[str, ...]]:
    """Column names of a list, each as a path; backquotes protect dots and commas, two of them stand for one.

    >>> split_names("a, b.c, `x,y`.z")
    [('a',), ('b', 'c'), ('x,y', 'z')]
    >>> split_names("`a``b`")
    [('a`b',)]
    """
    out: list[list[str]] = [[""]]
    quoted = False
    doubled = "\0"  # no column is named so
    for c in text.replace("``", doubled):
        if c == "`":
            quoted = not quoted
        elif quoted or c not in ".,":
            out[-1][-1] += c
        elif c == ".":
            out[-1][-1] = out[-1][-1].strip()
            out[-1].append("")
        else:
            out.append([""])
    return [tuple(part.strip().replace(doubled, "`") for part in path) for path in out if any(path)]
