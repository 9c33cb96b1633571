"""``ShardedBatchIterator`` under the import path of pylance."""

from trilake.lance.sampler import ShardedBatchIterator

__all__ = ["ShardedBatchIterator"]
