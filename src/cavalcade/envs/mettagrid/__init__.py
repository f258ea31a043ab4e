"""MettaGrid: the package's C++ simulator, hosted in workers. Needs the extra `mettagrid`."""
