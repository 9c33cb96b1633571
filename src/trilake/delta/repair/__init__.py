"""What of a Delta table can be mended safely: a function a step, which says first what it would do."""
