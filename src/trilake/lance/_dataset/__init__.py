"""The place of :class:`~trilake.lance.sampler.ShardedBatchIterator` in other implementations."""
