"""The built-in backends. They are plugins like a vendor's: found by name, imported only when named.

Does not: import any of them.
"""
