"""Pages of the documentation that are made of the code: options, table properties, error codes.

A hook of mkdocs: ``on_files`` adds the pages to the site whenever it is built, so they cannot fall behind the code.
``words.toml`` has what the code does not say; ``tests/docs/test_reference.py`` holds its names to those of the code.
"""

from __future__ import annotations

import importlib
import pkgutil
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
WORDS: Mapping[str, Mapping[str, str]] = tomllib.loads((HERE / "words.toml").read_text())


def table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """A table of Markdown."""
    columns = list(head)
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines) + "\n"


# --- errors ----------------------------------------------------------------------------------------------------------


def error_classes() -> dict[str, list[type[Exception]]]:
    """The public classes of errors by their code, base classes first."""
    import trilake
    from trilake.errors import TrilakeError

    for module in pkgutil.walk_packages(trilake.__path__, "trilake."):
        if module.name != "trilake.lance.torch.data":  # which needs torch, and has no errors of its own
            importlib.import_module(module.name)

    def below(cls: type[TrilakeError]) -> Iterator[type[TrilakeError]]:
        yield cls
        for sub in cls.__subclasses__():
            yield from below(sub)

    codes: dict[str, list[type[Exception]]] = {}
    for cls in below(TrilakeError):
        if not cls.__module__.startswith("trilake."):
            continue  # a class of a test or user
        of_code = codes.setdefault(cls.code, [])
        if not cls.__name__.startswith("_") and cls not in of_code:
            of_code.append(cls)
    return codes


def errors() -> str:
    """The page of error codes, each with its cause and what to do."""
    rows = []
    for code, classes in error_classes().items():
        main, others = classes[0], [c.__name__ for c in classes[1:]]
        # The first paragraph, without the code blocks and roles of docstrings.
        cause = " ".join((main.__doc__ or "").split("\n\n")[0].replace("``", "`").split())
        names = f"`{main.__name__}`" + (f"; also {', '.join(f'`{n}`' for n in others)}" if others else "")
        rows.append((f"`{code}`", names, cause, WORDS["errors"].get(code, "")))
    return (
        "---\nhide: [toc]\n---\n\n# Errors\n\n"
        "All errors of trilake are subclasses of `trilake.TrilakeError`. Each has a `code`, which never changes, a"
        " `message`, a `context` (file, version, column) and a `help`. `str(error)` shows all of it.\n\n"
        "```python\n"
        "import trilake\n\n"
        "try:\n"
        '    trilake.open("no/such/table")\n'
        "except trilake.TrilakeError as e:\n"
        "    print(e.code, e.context, e.help)\n"
        "```\n\n" + table(("Code", "Class", "Cause", "What to do"), rows)
    )


# --- properties ------------------------------------------------------------------------------------------------------


def properties() -> str:
    """The page of table properties, with defaults and values."""
    from trilake.delta.protocol import features
    from trilake.delta.protocol.properties import known_properties
    from trilake.delta.protocol.property_values import WrongValueError

    feature_of = {p.name: f.name for f in features.REGISTRY.values() for p in f.properties}

    def allowed(check: Any) -> str:
        try:
            check("\0")
        except WrongValueError as e:
            return str(e)
        return "a list of columns" if "lambda" in check.__name__ else "a string"

    settable, others = [], []
    for p in sorted(known_properties().values(), key=lambda p: p.name.lower()):
        default = "" if p.default is None else f"`{p.default}`"
        needs = f" Feature: `{feature_of[p.name]}`." if p.name in feature_of else ""
        meaning = WORDS["properties"].get(p.name, "")
        if p.set_by is None:
            settable.append((f"`{p.name}`", default, allowed(p.check), meaning + needs))
        else:
            others.append((f"`{p.name}`", p.set_by, meaning))
    return (
        "---\nhide: [toc]\n---\n\n# Table properties\n\n"
        "Properties of Delta tables. Set them when you create a table, or later:\n\n"
        "```python\n"
        "import trilake\n\n"
        'trilake.create("lake/orders", {"id": "bigint"}, properties={"delta.enableChangeDataFeed": "true"})\n'
        'trilake.alter("lake/orders").set_properties({"delta.logRetentionDuration": "interval 60 days"})\n'
        "```\n\n"
        "Unknown names that begin with `delta.` are rejected. You can choose all other names freely.\n\n"
        + table(("Property", "Default", "Values", "Meaning"), settable)
        + "\n## Set by the table itself\n\n"
        + table(("Property", "Set by", "Meaning"), others)
        + "\n## Features\n\n"
        "`delta.feature.<name> = supported` adds a table feature. Most are added automatically.\n\n"
        + table(
            ("Feature", "Read", "Written", "Readers must support it"),
            ((f"`{f.name}`", _yes(f.reads), _yes(f.writes), _yes(f.of_readers)) for f in features.REGISTRY.values()),
        )
    )


def _yes(value: bool) -> str:
    return "yes" if value else "no"


# --- options ---------------------------------------------------------------------------------------------------------


def option_lists() -> dict[str, tuple[str, ...]]:
    """The options of Spark's readers and writers, by what reads them."""
    from trilake.delta.stream.options import STREAM_READ_OPTIONS
    from trilake.lance import table as lance
    from trilake.spark.delta import source as delta_source
    from trilake.spark.lance import source as lance_source
    from trilake.spark.lance.source import LANCE_STREAM_OPTIONS
    from trilake.spark.session.options import STREAM_WRITE_OPTIONS
    from trilake.spark.trevni import source as trevni_source
    from trilake.spark.trevni.source import TREVNI_STREAM_OPTIONS
    from trilake.trevni.tables import table_write as trevni

    return {
        'Delta: `spark.read.format("delta")`': delta_source.READ_OPTIONS,
        'Delta: `df.write.format("delta")`': delta_source.WRITE_OPTIONS,
        'Delta: `spark.readStream.format("delta")`': STREAM_READ_OPTIONS,
        'Lance: `spark.read.format("lance")`': lance_source.READ_OPTIONS,
        'Lance: `df.write.format("lance")`': lance_source.WRITE_OPTIONS,
        'Lance: `spark.readStream.format("lance")`': LANCE_STREAM_OPTIONS,
        'Lance: `properties` of `trilake.write(…, format="lance")`': lance.OPTIONS,
        'Trevni: `spark.read.format("trevni")`': trevni_source.READ_OPTIONS,
        'Trevni: `df.write.format("trevni")`': trevni_source.WRITE_OPTIONS,
        'Trevni: `spark.readStream.format("trevni")`': TREVNI_STREAM_OPTIONS,
        'Trevni: `properties` of `trilake.write(…, format="trevni")`': trevni.OPTIONS,
        "All formats: `df.writeStream`, in addition to the options of a write": STREAM_WRITE_OPTIONS,
    }


def options() -> str:
    """The page of options: of reads, writes and streams, of stores, and of the session."""
    from trilake.spark.delta.settings import SETTINGS
    from trilake.storage import options as stores

    parts = [
        (
            "# Options\n\nThe case of names does not matter. An unknown option is an error; options of Spark's own "
            "formats, such as `header`, are ignored with a warning. Pass options of a store together with those of the "
            "format.\n"
        )
    ]
    for title, names in option_lists().items():
        parts.append(
            f"\n## {title}\n\n" + table(("Option", "Meaning"), ((f"`{n}`", WORDS["options"].get(n, "")) for n in names))
        )
    parts.append(
        "\nProperties of a new Delta table (`delta.…`) are also options of a write: "
        "[Table properties](properties.md).\n"
        "\n## Stores\n\nPass these as `storage_options={…}`, as options of Spark's readers and writers, or in the "
        "environment; see [Use object stores](../howto/object-stores.md).\n\n"
        + table(
            ("Store", "Names"),
            (
                ("S3", "those below, also with the prefix `AWS_`"),
                ("Google", "those below, also with the prefix `GOOGLE_`"),
                ("Azure", "those below, also with the prefix `AZURE_`"),
                ("any store", ", ".join(f"`{n}`" for n in sorted(stores._BARE))),
                ("any store, connections", ", ".join(f"`{n}`" for n in sorted(stores._CLIENT))),
                ("any store, retries", ", ".join(f"`{n}`" for n in (*stores._RETRY, *stores._BACKOFF))),
                ("any store, permissions", ", ".join(f"`{n}`" for n in sorted(stores._PERMISSIONS))),
                ("Hadoop's names", ", ".join(f"`{n}`" for n in sorted(stores.HADOOP))),
            ),
        )
        + "\n## Settings of the session\n\nWhat each setting of delta-spark does in trilake: *honoured* settings work "
        "as in delta-spark, *harmless* ones are ignored, and *rejected* ones make writes fail. A name that ends "
        "with a dot stands for all settings with that prefix.\n\n"
        + table(("Setting", "Effect", "Meaning"), ((f"`{s.name}`", s.effect, s.meaning) for s in SETTINGS))
    )
    return "".join(parts)


PAGES = {"reference/errors.md": errors, "reference/properties.md": properties, "reference/options.md": options}


def on_files(files: Any, config: Any) -> Any:
    """Add the generated pages to the files of the site."""
    from mkdocs.structure.files import File

    for path, page in PAGES.items():
        files.append(File.generated(config, path, content=page()))
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Take out what is meant for the tests: the reason why a block is not run, and blocks that run unseen."""
    markdown = re.sub(r"^<!-- (?:before|after)\n.*?^-->\n", "", markdown, flags=re.MULTILINE | re.DOTALL)
    return re.sub(r'^(```\w+) notrun="[^"]*"$', r"\1", markdown, flags=re.MULTILINE)
