"""The data sources of all formats, as Spark knows them: each under the format's name and under ``trilake-<name>``."""

from __future__ import annotations

from trilake.spark.delta.source import DeltaDataSource, TrilakeDeltaDataSource
from trilake.spark.lance.source import LanceDataSource, TrilakeLanceDataSource
from trilake.spark.session.source_api import DataSource
from trilake.spark.trevni.source import TrevniDataSource, TrilakeTrevniDataSource

SOURCES: tuple[type[DataSource], ...] = (
    DeltaDataSource,
    TrilakeDeltaDataSource,
    LanceDataSource,
    TrilakeLanceDataSource,
    TrevniDataSource,
    TrilakeTrevniDataSource,
)
