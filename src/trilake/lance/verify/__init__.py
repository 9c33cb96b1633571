"""Whether a Lance dataset keeps the format's promises: manifests, fragments, pages, statistics, deletions, indices."""
