"""Post-commit hook: update the Iceberg metadata of a table if its properties enable it.

The commit stands even if the hook fails, so failures are only logged; the next commit catches up.
"""

from __future__ import annotations

import logging

from trilake.common.extras import missing
from trilake.delta.commit.transaction import CommitEvent

_log = logging.getLogger("trilake.delta")


def update_iceberg(event: CommitEvent) -> None:
    """Convert the versions since the last converted one.  Never raises."""
    try:
        try:
            from trilake.delta.iceberg.sync import sync
        except ImportError:
            raise missing("pyiceberg", "Iceberg metadata of Delta tables") from None
        sync(event.log, event.runtime, event)
    except Exception as e:  # noqa: BLE001 - no failure of the conversion may look like one of the commit
        message = "version %d of %s is committed, but its Iceberg metadata could not be written: %s"
        _log.warning(message, event.version, event.log.store.uri, e)
