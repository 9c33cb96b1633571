"""Docstrings as Markdown: an extension of griffe, which reads the sources for mkdocstrings.

The package writes reStructuredText's double backticks and roles, lists of parameters under a rule, and examples as
doctests or indented blocks.  Each becomes what the site shows best.
"""

from __future__ import annotations

import re
from typing import Any

import griffe

_ROLE = re.compile(r":\w+(?::\w+)?:`~?\.?([^`]+)`")
_CODE = re.compile(r"``(?!`)(.+?)``(?!`)", re.DOTALL)
_RULE = re.compile(r"^(\w[\w ]*)\n-{3,}$", re.MULTILINE)
_PARAMETER = re.compile(r"^([\w*][\w*, ]*): +(?=\S)")


def markdown(text: str) -> str:
    r"""A docstring as Markdown.

    >>> markdown("Read ``delta.`/path```.")
    'Read `` delta.`/path` ``.'
    >>> print(markdown("Do it.\n\nParameters\n----------\nx: how ``much``.\n\n>>> do(1)\n2"))
    Do it.
    <BLANKLINE>
    **Parameters**
    <BLANKLINE>
    * `x`: how `much`.
    <BLANKLINE>
    ```python
    >>> do(1)
    2
    ```
    """
    text = _ROLE.sub(lambda m: f"`{m[1].rpartition('.')[2]}`", text)
    text = _CODE.sub(_code, text)
    out: list[str] = []
    section = ""
    for block in re.split(r"\n\s*\n", text):
        if heading := _RULE.match(block):
            section = heading[1]
            out.append(f"**{section}**")
            block = block[heading.end() :].lstrip("\n")
            if not block.strip():
                continue
        if block.lstrip().startswith(">>>"):
            out.append(f"```python\n{_dedented(block)}\n```")
            section = ""
        elif out and out[-1].endswith("::"):
            out[-1] = out[-1][:-1]
            out.append(f"```python\n{_dedented(block)}\n```")
        elif section in ("Parameters", "Attributes", "Fields") and _PARAMETER.match(block):
            out.append(_parameters(block))
        else:
            section = ""
            out.append(_tables(block))
    return "\n\n".join(out)


def _code(found: re.Match[str]) -> str:
    """Code in a line; where it has backticks itself, between two and a space."""
    return f"`` {found[1]} ``" if "`" in found[1] else f"`{found[1]}`"


def _parameters(block: str) -> str:
    items: list[str] = []
    for line in block.splitlines():
        if m := _PARAMETER.match(line):
            names = ", ".join(f"`{n.strip()}`" for n in m[1].split(","))
            items.append(f"* {names}: {line[m.end() :]}")
        elif items:
            items[-1] += " " + line.strip()
        else:
            items.append(line)
    return "\n".join(items)


def _tables(block: str) -> str:
    """Tables of reStructuredText are shown as they stand."""
    return f"```text\n{_dedented(block)}\n```" if re.match(r"\s*={3,} +={3,}", block) else block


def _dedented(block: str) -> str:
    lines = block.strip("\n").splitlines()
    indent = min((len(line) - len(line.lstrip()) for line in lines if line.strip()), default=0)
    return "\n".join(line[indent:] for line in lines)


class Docstrings(griffe.Extension):
    """Turns every docstring into Markdown before it is shown, and shows methods of parts in the class that has them."""

    def __init__(self) -> None:
        super().__init__()
        self._rewritten: dict[int, griffe.Docstring] = {}

    def on_class(self, *, cls: griffe.Class, loader: griffe.GriffeLoader, **_: Any) -> None:
        """Replace ``name = of_part(Part, Part.name)`` with the method of the part."""
        for name, member in list(cls.members.items()):
            value = None if member.is_alias else getattr(member, "value", None)
            if isinstance(value, griffe.ExprCall) and value.canonical_path.endswith(".of_part"):
                method = value.arguments[1]
                assert isinstance(method, griffe.Expr)
                of_part: Any = loader.modules_collection.get_member(method.canonical_path)
                parts = {"parameters": of_part.parameters, "returns": of_part.returns, "docstring": of_part.docstring}
                cls.set_member(name, griffe.Function(name, lineno=member.lineno, endlineno=member.endlineno, **parts))

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Rewrite the docstring of a module, class, function or attribute, once."""
        if obj.docstring is not None and id(obj.docstring) not in self._rewritten:
            self._rewritten[id(obj.docstring)] = obj.docstring
            obj.docstring.value = markdown(obj.docstring.value)
