"""Run directories: what a run leaves on disk, so that nothing is lost whenever it stops."""
