"""``verify``, ``repair`` and ``diff``: whether a table keeps its promises, what mends it, what two differ in.

What each format promises is in the format's own folder; here is what users call.
"""

from trilake.inspection.diff import diff
from trilake.inspection.repair import repair
from trilake.inspection.verify import verify

__all__ = ["diff", "repair", "verify"]
