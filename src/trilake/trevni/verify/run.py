"""The checks of Trevni files, and the function that runs them."""

from __future__ import annotations

from collections.abc import Mapping

from trilake.table.findings import MAX_LISTED, Check, Depth, Findings, run_checks
from trilake.trevni.verify import blocks, headers
from trilake.trevni.verify.context import TrevniContext

CHECKS: tuple[Check[TrevniContext], ...] = (
    Check(
        "trevni.partition-folders-differ", "files are in folders of the same partition columns", "log", headers.folders
    ),
    Check("trevni.header-unreadable", "every file has a header that can be read", "files", headers.readable),
    Check("trevni.parent-wrong", "parents are earlier array columns", "files", headers.parents),
    Check("trevni.descriptor-wrong", "block descriptors fit the file and its rows", "files", headers.descriptors),
    Check("trevni.schema-wrong", "a file's schema fits its columns", "files", headers.schemas),
    Check("trevni.schema-differs", "the files of a table have the same columns", "files", headers.same_columns),
    Check("trevni.block-checksum", "every block matches its checksum", "rows", blocks.checksums),
    Check("trevni.block-unreadable", "every block holds exactly its values", "rows", blocks.payloads),
    Check("trevni.first-value-wrong", "descriptors have the first values of blocks", "rows", blocks.first_values),
)


def verify_trevni(
    location: str, options: Mapping[str, str], depth: Depth, sample: int | None, limit: int = MAX_LISTED
) -> Findings:
    """Run all checks of Trevni files up to a depth; see :func:`trilake.verify`.  Raises ``TableNotFoundError``."""
    context = TrevniContext(location, options, depth, sample)
    _ = context.files
    findings, runs = run_checks(CHECKS, context, depth, limit)
    return Findings(location, "trevni", None, depth, findings, runs)
