"""Table feature ``timestampNtz``: timestamps without a time zone."""

from __future__ import annotations

from trilake.delta.protocol.feature_definition import feature_of_type

FEATURE = feature_of_type("timestampNtz", "timestamp_ntz", late=True)
