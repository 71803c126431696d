"""Decompositions: how aten reaches the contract.

Does not: run them (the pipeline does) or say what a backend claims.
"""

from backend_sdk.decomp.registry import RULES, all_rules, decomposition, rule_of

__all__ = ["RULES", "all_rules", "decomposition", "rule_of"]
