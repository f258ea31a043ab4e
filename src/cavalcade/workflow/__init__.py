"""Workflows: orders in which kinds of subtasks are to be done, and how well an agent keeps to one."""
