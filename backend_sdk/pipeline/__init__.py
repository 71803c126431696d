"""From a captured graph to a callable, one file a pass:
capture, decompose, claim, partition, fuse, lower, plan, run.

Does not: find backends (`backend_sdk.plugins`) or define ops (`backend_sdk.prims`).
"""
