"""Measurements behind `cavalcade bench`: each prints a table and can write its raw figures."""
