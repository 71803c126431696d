"""Decompositions: how aten reaches the contract.

Does not: run them (the pipeline does) or say what a backend claims.
"""

from backend_sdk.decomp.registry import RULES, decomposition, rule_of, rules_with

__all__ = ["RULES", "decomposition", "rule_of", "rules_with"]
