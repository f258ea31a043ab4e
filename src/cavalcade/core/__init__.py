"""Foundations: the environment contract, errors, random numbers, compilation, devices and threads."""
