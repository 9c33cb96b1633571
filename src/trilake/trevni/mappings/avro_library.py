"""Import fastavro, which the extra ``trevni`` installs."""

from trilake.common.extras import missing

try:
    import fastavro
    import fastavro.read
    import fastavro.schema
    import fastavro.write
except ImportError:
    raise missing("fastavro", "Avro schemas and files") from None

__all__ = ["fastavro"]
