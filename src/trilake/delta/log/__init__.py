"""The log of a table: segments, checkpoints, replay, snapshots, clean-up, history."""
