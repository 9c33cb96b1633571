"""The module where pylance keeps :class:`~trilake.lance.sampler.ShardedBatchIterator`."""
