"""The only package that touches torch's private names. `private_names.py` lists each with its reason.

Does not: know anything of Backend SDK's own types, so that a new torch release is met here alone.
"""
