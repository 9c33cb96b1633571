"""The data sources of all formats, as Spark knows them: each under the format's name and under ``trilake-<name>``."""

from __future__ import annotations

from collections.abc import MutableMapping

from trilake.errors import MissingDependencyError
from trilake.spark.delta.source import DeltaDataSource, TrilakeDeltaDataSource
from trilake.spark.session.sources.api import DataSource
from trilake.spark.trevni.source import TrevniDataSource, TrilakeTrevniDataSource


def unavailable(name: str, error: MissingDependencyError) -> type[DataSource]:
    """A data source for a format whose libraries are not installed: each use of it says which."""

    class Unavailable(DataSource):
        """Says what to install."""

        @classmethod
        def name(cls) -> str:
            return name

        def __init__(self, options: MutableMapping[str, str]) -> None:
            raise error

    return Unavailable


def _lance_sources() -> tuple[type[DataSource], ...]:
    try:
        from trilake.spark.lance.source import LanceDataSource, TrilakeLanceDataSource
    except MissingDependencyError as e:
        return unavailable("lance", e), unavailable("trilake-lance", e)
    return LanceDataSource, TrilakeLanceDataSource


SOURCES: tuple[type[DataSource], ...] = (
    DeltaDataSource,
    TrilakeDeltaDataSource,
    *_lance_sources(),
    TrevniDataSource,
    TrilakeTrevniDataSource,
)
