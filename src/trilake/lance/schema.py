"""Names of schemas that users of the format know under this module."""

from __future__ import annotations

from trilake.lance.file.schema import LanceSchema
from trilake.lance.file.schema_json import json_to_schema, schema_to_json

__all__ = ["LanceSchema", "json_to_schema", "schema_to_json"]
