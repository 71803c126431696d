"""Runs plans: device memory, the arena, kernels made of plain functions, generated runners.

Does not: decide what to run (the pipeline does).
"""
