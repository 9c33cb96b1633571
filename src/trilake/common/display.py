"""HTML for notebooks: small tables in which every value is escaped.

Nothing here reads a file or runs a job.  ``%load_ext trilake`` also shows Arrow tables (histories, lists of files,
rows) this way, until ``%unload_ext trilake``.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar

from trilake.common.text import format_size, plain, plural

#: Most rows and columns of a table, and characters of a value.
_ROWS, _COLUMNS, _VALUE = 20, 30, 120


def text_of(value: object, limit: int = _VALUE) -> str:
    """Format a value as a cell: escaped, cut, without hidden characters.

    >>> text_of("<b>"), text_of(None), text_of(1234567)
    ('&lt;b&gt;', '', '1,234,567')
    """
    if value is None:
        return ""
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    return _escaped(plain(value, limit))


def _escaped(text: str) -> str:
    from html import escape

    return escape(text)


def table_of(head: Sequence[str], rows: Iterable[Sequence[object]], more: int = 0, limit: int = _VALUE) -> str:
    """A table with a header; ``more`` is the number of rows left out, ``limit`` the most characters of a value.

    >>> table_of(["n"], [[1]])
    '<table><thead><tr><th scope="col">n</th></tr></thead><tbody><tr><td>1</td></tr></tbody></table>'
    """
    names = "".join(f'<th scope="col">{text_of(name)}</th>' for name in head)
    lines = ["".join(f"<td>{text_of(value, limit)}</td>" for value in row) for row in rows]
    if more > 0:
        lines.append(f'<td colspan="{max(len(head), 1)}">and {plural(more, "more row")}</td>')
    body = "".join(f"<tr>{line}</tr>" for line in lines)
    return f"<table><thead><tr>{names}</tr></thead><tbody>{body}</tbody></table>"


def arrow_of(table: Any) -> str:
    """Show the first rows and columns of an Arrow table, and its size."""
    view = table.select(table.column_names[:_COLUMNS]) if len(set(table.column_names)) == table.num_columns else table
    rows = view.slice(0, _ROWS)
    columns = [column.to_pylist() for column in rows.columns[:_COLUMNS]]
    head = [f"{name} ({kind})" for name, kind in zip(view.column_names, view.schema.types, strict=True)][:_COLUMNS]
    hidden = table.num_columns - len(head)
    about = f"{plural(table.num_rows, 'row')}, {plural(table.num_columns, 'column')}"
    about += f", {hidden:,} not shown" if hidden > 0 else ""
    lines = zip(*columns, strict=True) if columns else ()
    return f"<div>{table_of(head, lines, table.num_rows - rows.num_rows)}<p>{about}</p></div>"


def card(title: str, facts: Iterable[tuple[str, object]]) -> str:
    """A title, and labelled values as a table with two columns.

    >>> card("WRITE", [("rows added", 2)])
    '<div><b>WRITE</b><table><tbody><tr><th scope="row">rows added</th><td>2</td></tr></tbody></table></div>'
    """
    lines = "".join(
        f'<tr><th scope="row">{text_of(name)}</th><td>{_cell(name, value)}</td></tr>' for name, value in facts
    )
    return f"<div><b>{text_of(title)}</b><table><tbody>{lines}</tbody></table></div>"


def _cell(name: str, value: object) -> str:
    if hasattr(value, "column_names") and hasattr(value, "num_rows"):
        return arrow_of(value) if value.num_rows else "none"
    if isinstance(value, Mapping):
        return table_of(("", ""), list(value.items())[:_ROWS], len(value) - _ROWS)
    if isinstance(value, tuple | list | set | frozenset):
        items = [plain(v, _VALUE) for v in list(value)[:_ROWS]]
        more = len(value) - len(items)
        return _escaped(", ".join(items)) + (f", and {more:,} more" if more else "") if value else "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int) and re.search(r"\b(?:size|bytes)\b", name):
        return f"{format_size(value)} ({value:,} bytes)" if value >= 1000 else f"{value:,} bytes"
    return text_of(value)


def words(name: str) -> str:
    """Split an identifier into words.

    >>> words("num_copied_files"), words("numTargetRowsInserted")
    ('copied files', 'target rows inserted')
    """
    spread = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", name).replace("_", " ").lower()
    return re.sub(r"^num (?:of )?", "", spread)


class Displayed:
    """A dataclass that notebooks show as a table of its fields."""

    __dataclass_fields__: ClassVar[dict[str, dataclasses.Field[Any]]]

    def _repr_html_(self) -> str:
        return card(self._title(), self._facts())

    def _title(self) -> str:
        return re.sub(r"(?<=[a-z])(?=[A-Z])", " ", type(self).__name__).removesuffix(" Result")

    def _facts(self) -> list[tuple[str, object]]:
        values = [(words(f.name), getattr(self, f.name)) for f in dataclasses.fields(self) if f.repr]
        return [(name, value) for name, value in values if value is not None]


#: Classes by the module and name under which notebooks look them up, so that none is imported here.
_CLASSES = (("pyarrow.lib", "Table"), ("pyarrow.lib", "RecordBatch"))
_HTML = "text/html"


def load_ipython_extension(shell: Any) -> None:
    """Show Arrow tables as HTML in the notebook of ``shell``, for ``%load_ext trilake``."""
    formatter = shell.display_formatter.formatters[_HTML]
    for module, name in _CLASSES:
        formatter.for_type_by_name(module, name, arrow_of)


def unload_ipython_extension(shell: Any) -> None:
    """Undo :func:`load_ipython_extension`, for ``%unload_ext trilake``."""
    formatter = shell.display_formatter.formatters[_HTML]
    for module, name in _CLASSES:
        formatter.pop(f"{module}.{name}", None)


class PublicNames:
    """A class of objects whose ``dir()``, and so tab completion, lists only public methods and properties."""

    def __dir__(self) -> list[str]:
        fields = getattr(type(self), "__dataclass_fields__", {})
        kinds = [k for k in type(self).__mro__ if k is not object]
        return sorted({n for k in kinds for n in vars(k) if not n.startswith("_") and n not in fields})
