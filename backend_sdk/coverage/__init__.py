"""Coverage: a verdict for every aten overload of the installed torch, and its proof by execution.

Does not: print (the command line does), or hold rules.
"""
