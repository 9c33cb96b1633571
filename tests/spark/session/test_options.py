"""Options that a read or write applies, ignores and rejects."""

from __future__ import annotations

import warnings
from pathlib import Path

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

import trilake
from trilake.common.spark_options import has_no_effect
from trilake.errors import UnknownOptionError
from trilake.spark.delta.source import READ_OPTIONS, WRITE_OPTIONS
from trilake.spark.session.options import Options

BOILERPLATE = {"inferSchema": "true", "HEADER": "true", "timestampformat": "y", "multiLine": "true", "mode": "FAILFAST"}


def test_options_of_spark_readers_are_ignored_with_one_warning() -> None:
    with pytest.warns(UserWarning, match="options: HEADER, inferSchema, mode, multiLine, timestampformat") as warned:
        options = Options({**BOILERPLATE, "versionAsOf": "3", "AWS_REGION": "x"}, READ_OPTIONS, reading=True)
    assert len(warned) == 1
    assert (options.values, options.store) == ({"versionAsOf": "3"}, {"AWS_REGION": "x"})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Options({"versionAsOf": "3"}, READ_OPTIONS, reading=True)


@pytest.mark.parametrize(
    "name",
    # Misspelt options, delta-spark options without effect here, and options that would select files.
    ["versionAsOff", "headers", "infer", "ignoreChange", "replaceBy", "sourceAlias", "pathGlobFilter", "modifiedAfter"],
)
def test_options_that_may_mean_trilake_are_errors(name: str) -> None:
    for known, reading in ((READ_OPTIONS, True), (WRITE_OPTIONS, False)):
        with pytest.raises(UnknownOptionError, match=name):
            Options({name: "x", "header": "true"}, known, reading=reading)


def test_options_of_streams_are_ignored_by_batches() -> None:
    """Functions of ``foreachBatch`` often pass the options of their stream on; delta-spark ignores them."""
    of_stream = {"checkpointLocation": "x", "maxFilesPerTrigger": "1", "ignoreChanges": "true"}
    for known, reading in ((READ_OPTIONS, True), (WRITE_OPTIONS, False)):
        with pytest.warns(UserWarning, match="options: checkpointLocation, ignoreChanges, maxFilesPerTrigger"):
            options = Options(of_stream, known, reading=reading)
        assert options.values == {}
    with pytest.raises(UnknownOptionError, match="startingVersion"):
        Options({"startingVersion": "1"}, WRITE_OPTIONS)


def test_write_options_are_ignored_by_reads_only() -> None:
    for name in ("mergeSchema", "overwriteSchema", "partitionOverwriteMode", "userMetadata", "delta.appendOnly"):
        assert has_no_effect(name, "true", reading=True)
        assert not has_no_effect(name, "true")
    assert has_no_effect("parquet.block.size", "1")
    assert has_no_effect("data_directory", "lake/t", reading=True)  # of great_expectations
    with pytest.raises(UnknownOptionError, match="mode"):
        Options({"mode": "overwrite"}, WRITE_OPTIONS)


def test_boilerplate_options_are_ignored_with_a_warning(spark: SparkSession, tmp_path: Path) -> None:
    trilake.register(spark)
    rows = spark.range(3)
    for format in ("delta", "trevni"):
        path = str(tmp_path / format)
        with pytest.warns(UserWarning, match="ignores these options: header, quoteAll"):
            rows.write.format(format).option("header", "true").option("quoteAll", "true").save(path)
        with pytest.warns(UserWarning, match="ignores these options: header, inferSchema"):
            frame = spark.read.format(format).option("header", "true").option("inferSchema", "true").load(path)
        assert frame.count() == 3
        with pytest.raises(AnalysisException, match="unknown option 'headr'"):
            spark.read.format(format).option("headr", "true").load(path).count()
