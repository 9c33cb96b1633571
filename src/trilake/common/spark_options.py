"""Options of Spark's own readers and writers (CSV, JSON, XML, text, Parquet, ORC, Avro, streams) without effect here.

Spark ignores options that a source does not know, so options such as ``header`` are often passed to every format.
Options that choose files, such as ``pathGlobFilter``, are not listed: ignoring one would return different rows.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable

_OF_SPARK = frozenset(
    name.lower()
    for names in (
        # CSV and text
        "sep delimiter encoding charset quote quoteAll escape escapeQuotes charToEscapeQuoteEscaping comment header",
        "inferSchema preferDate enforceSchema ignoreLeadingWhiteSpace ignoreTrailingWhiteSpace nullValue emptyValue",
        "nanValue positiveInf negativeInf dateFormat timestampFormat timestampNTZFormat timeFormat",
        "enableDateTimeParsingFallback maxColumns maxCharsPerColumn columnNameOfCorruptRecord multiLine samplingRatio",
        "unescapedQuoteHandling lineSep locale wholetext inputBufferSize columnPruning",
        # JSON
        "primitivesAsString prefersDecimal allowComments allowUnquotedFieldNames allowSingleQuotes timeZone",
        "allowNumericLeadingZeros allowBackslashEscapingAnyCharacter allowUnquotedControlChars ignoreNullFields",
        "allowNonNumericNumbers dropFieldIfAllNull writeNonAsciiCharacterAsCodePoint pretty singleVariantColumn",
        # XML and Avro
        "rowTag rootTag declaration arrayElementName attributePrefix valueTag excludeAttribute validateName",
        "treatEmptyValuesAsNulls rowValidationXSDPath ignoreSurroundingSpaces ignoreNamespace wildcardColName",
        "avroSchema avroSchemaUrl recordName recordNamespace ignoreExtension positionalFieldMatching",
        # Parquet, ORC, and all sources of files
        "datetimeRebaseMode int96RebaseMode ignoreCorruptFiles ignoreMissingFiles recursiveFileLookup basePath",
        # streams, on reads and writes that are none, such as those of foreachBatch
        "checkpointLocation queryName maxFilesPerTrigger maxBytesPerTrigger ignoreDeletes ignoreFileDeletion",
        "ignoreChanges skipChangeCommits failOnDataLoss",
        # great_expectations, whose assets of a folder pass the folder, too
        "data_directory",
    )
    for name in names.split()
)
#: Options of Hadoop's writers, which Spark passes on.
_PREFIXES = ("parquet.", "orc.")
#: Options of Delta's writers without effect on reads, and the prefix of properties.
_OF_WRITERS = frozenset(
    name.lower()
    for names in (
        "mergeSchema overwriteSchema partitionOverwriteMode replaceWhere txnAppId txnVersion userMetadata",
        "optimizeWrite maxRecordsPerFile compression dataChange",
    )
    for name in names.split()
)
_PROPERTIES = "delta."
_PARSE_MODES = frozenset(("permissive", "dropmalformed", "failfast"))


def has_no_effect(name: str, value: str, *, reading: bool = False) -> bool:
    """Whether an option belongs to Spark's own readers and writers, and has no effect here.

    >>> has_no_effect("inferSchema", "true"), has_no_effect("mode", "PERMISSIVE"), has_no_effect("mode", "append")
    (True, True, False)
    """
    key = name.lower()
    if key == "mode":
        return str(value).lower() in _PARSE_MODES
    if reading and (key in _OF_WRITERS or key.startswith(_PROPERTIES)):
        return True
    return key in _OF_SPARK or key.startswith(_PREFIXES)


def warn_ignored(names: Iterable[str]) -> None:
    """Warn about all ignored options at once."""
    ignored = ", ".join(sorted(names))
    if ignored:
        warnings.warn(f"this format ignores these options: {ignored}", stacklevel=3)
