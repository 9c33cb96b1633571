"""``ShardedBatchIterator`` under the module that users of the format import it from."""

from trilake.lance.sampler import ShardedBatchIterator

__all__ = ["ShardedBatchIterator"]
