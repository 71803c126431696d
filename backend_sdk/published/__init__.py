"""The published contract: its version, hash, JSON, pages, and what a new version asks of a vendor.

Does not: define an op (`backend_sdk.prims` does) or the form of one (`backend_sdk.spec`).
"""
