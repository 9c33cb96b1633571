"""fastavro, which comes with the extra ``trevni``."""

from trilake.common.extras import missing

try:
    import fastavro
    import fastavro.read
    import fastavro.schema
    import fastavro.write
except ImportError as e:
    raise missing("fastavro", "Avro schemas and files") from e

__all__ = ["fastavro"]
