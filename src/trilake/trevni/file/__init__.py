"""Read and write single files."""
