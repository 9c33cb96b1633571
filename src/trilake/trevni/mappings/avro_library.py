"""fastavro, which comes with the extra ``trevni``."""

from trilake.errors import MissingDependencyError

try:
    import fastavro
    import fastavro.read
    import fastavro.schema
    import fastavro.write
except ImportError as e:
    raise MissingDependencyError.of("fastavro", "trevni", "Avro schemas and files") from e

__all__ = ["fastavro"]
