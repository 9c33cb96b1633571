"""Re-exports for ``import lance.indices``."""

from __future__ import annotations

from trilake.lance.pylance.stats import IndexSegmentDescription
from trilake.lance.pylance.vector_models import IndexConfig, IndexFileVersion, IndicesBuilder, IvfModel, PqModel

__all__ = ["IndexConfig", "IndexFileVersion", "IndexSegmentDescription", "IndicesBuilder", "IvfModel", "PqModel"]
