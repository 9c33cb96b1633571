"""``%load_ext trilake``: a notebook shows Arrow tables (histories, lists of files, rows) as tables.

pyarrow's own tables show themselves as text.  Nothing is changed before the extension is loaded, and ``%unload_ext
trilake`` takes it back.
"""

from __future__ import annotations

from typing import Any

from trilake.display import arrow_of

#: Classes that are shown, by the module and name that a notebook looks them up by: none of them is imported here.
_CLASSES = (("pyarrow.lib", "Table"), ("pyarrow.lib", "RecordBatch"))
_HTML = "text/html"


def load_ipython_extension(shell: Any) -> None:
    """Show Arrow tables as tables in the notebook of ``shell``; IPython calls it for ``%load_ext trilake``."""
    formatter = shell.display_formatter.formatters[_HTML]
    for module, name in _CLASSES:
        formatter.for_type_by_name(module, name, arrow_of)


def unload_ipython_extension(shell: Any) -> None:
    """Show Arrow tables as before; IPython calls it for ``%unload_ext trilake``."""
    formatter = shell.display_formatter.formatters[_HTML]
    for module, name in _CLASSES:
        formatter.pop(f"{module}.{name}", None)
