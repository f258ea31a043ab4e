"""Plots and HTML reports of runs."""
