"""Workflows: orders in which kinds of subtasks are to be done, and how well an agent complies with one."""
