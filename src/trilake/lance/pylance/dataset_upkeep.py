"""``DatasetUpkeep``: migrate a dataset, and delete old versions and unused files."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from typing import Any

from trilake.common.arguments import count, flag
from trilake.errors import InvalidArgumentError
from trilake.lance.cleanup import CleanupExplanation, CleanupPlan, CleanupStats, cleanup
from trilake.lance.commands.format_options import check_format
from trilake.lance.commands.migrate import migrate, migrate_manifest_names
from trilake.lance.file.errors import OptionError, WrongTypeError
from trilake.lance.file.storage_version import StorageVersion
from trilake.lance.pylance.dataset_part import D, DatasetPart


class DatasetUpkeep(DatasetPart[D]):
    """Maintenance of the versions and files of a dataset; see also ``LanceDataset.optimize``."""

    def migrate(self, data_storage_version: str = "stable") -> None:
        """Rewrite all rows in the file version ``data_storage_version``, as one commit.

        Older versions keep their files; indices are dropped.

        >>> import pyarrow as pa
        >>> from trilake.lance import write_dataset
        >>> ds = write_dataset(pa.table({"a": [1, 2]}), "memory://doc-lance-migrate", data_storage_version="legacy")
        >>> ds.migrate()
        >>> ds.data_storage_version, ds.count_rows()
        ('2.2', 2)
        """
        self._dataset.moved(migrate(self._dataset.snapshot, StorageVersion.parse(data_storage_version)))

    def migrate_manifest_paths_v2(self) -> None:
        """Rename manifests to the v2 naming scheme; other writers must be stopped.

        >>> import pyarrow as pa
        >>> from trilake.lance import write_dataset
        >>> ds = write_dataset(pa.table({"a": [1]}), "memory://doc-lance-names", enable_v2_manifest_paths=False)
        >>> ds.migrate_manifest_paths_v2()
        >>> ds.checkout_version(1).count_rows()
        1
        """
        migrate_manifest_names(self._dataset.snapshot.store)

    def cleanup_old_versions(
        self,
        /,
        older_than: dt.timedelta | None = None,
        retain_versions: int | None = None,
        *,
        delete_unverified: bool = False,
        error_if_tagged_old_versions: bool = True,
        **later: Any,
    ) -> CleanupStats:
        """Delete versions older than ``older_than``, by default two weeks, and the files that only they reference.

        Parameters
        ----------
        older_than: minimum age of versions to delete.
        retain_versions: number of newest versions to keep regardless of age; without ``older_than``, all others are
            deleted.
        delete_unverified: delete unreferenced files even if younger than a week; unsafe while other writers are active.
        error_if_tagged_old_versions: whether a tag on an old version is an error; otherwise the version is kept.
        later: options of newer pylance releases; raises for unsupported ones.

        Raises ``WrongTypeError`` if ``older_than`` is not a timedelta.

        >>> import pyarrow as pa
        >>> from trilake.lance import write_dataset
        >>> ds = write_dataset(pa.table({"a": [1, 2, 3]}), "memory://doc-lance-cleanup")
        >>> _ = ds.delete("a > 1")
        >>> ds.cleanup_old_versions(retain_versions=1).old_versions
        1
        """
        unverified, tagged = delete_unverified, error_if_tagged_old_versions
        return self._cleanup(older_than, retain_versions, unverified, tagged, later, dry_run=False).stats

    def _cleanup(
        self,
        older_than: dt.timedelta | None,
        retain_versions: int | None,
        delete_unverified: bool,
        error_if_tagged: bool,
        later: Mapping[str, Any],
        *,
        dry_run: bool,
    ) -> CleanupPlan:
        check_format(later, of="cleanup_old_versions")
        retain = 1 if retain_versions is None else count("retain_versions", retain_versions)
        if retain < 1:
            raise OptionError(f"retain_versions must be greater than 0, got {retain}")
        age = dt.timedelta(days=14 if retain_versions is None else 0) if older_than is None else older_than
        if not isinstance(age, dt.timedelta):
            raise WrongTypeError(f"older_than must be a datetime.timedelta, got {older_than!r}")
        return cleanup(
            self._dataset.snapshot.store,
            int(age.total_seconds() * 1000),
            self._dataset.snapshot.runtime,
            retain=retain,
            delete_unverified=flag("delete_unverified", delete_unverified),
            error_if_tagged=flag("error_if_tagged_old_versions", error_if_tagged),
            dry_run=dry_run,
        )

    def explain_cleanup_old_versions(
        self,
        /,
        older_than: dt.timedelta | None = None,
        retain_versions: int | None = None,
        *,
        delete_unverified: bool = False,
        error_if_tagged_old_versions: bool = True,
        include_files: bool = False,
        max_files: int = 1000,
        **later: Any,
    ) -> CleanupExplanation:
        """Explain what :meth:`cleanup_old_versions` would delete.

        With ``include_files``, the result has up to ``max_files`` files.  Other parameters and errors are those of
        :meth:`cleanup_old_versions`.

        >>> import pyarrow as pa
        >>> from trilake.lance import write_dataset
        >>> ds = write_dataset(pa.table({"a": [1, 2, 3]}), "memory://doc-lance-explain-cleanup")
        >>> _ = ds.delete("a > 1")
        >>> plan = ds.explain_cleanup_old_versions(retain_versions=1, include_files=True)
        >>> plan.stats.old_versions, [file.kind for file in plan.candidate_files]
        (1, ['transaction file', 'manifest'])
        """
        if count("max_files", max_files) < 1:
            raise InvalidArgumentError(f"max_files must be positive, got {max_files}")
        unverified, tagged = delete_unverified, error_if_tagged_old_versions
        plan = self._cleanup(older_than, retain_versions, unverified, tagged, later, dry_run=True)
        limit = max_files if flag("include_files", include_files) else 0
        return plan.explanation(self._dataset.snapshot.version, limit)
