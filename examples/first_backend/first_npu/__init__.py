"""The backend of the tutorial in docs/vendors.md: a simulated accelerator called First NPU.

Does not: import anything. `first_npu.plugin` is what the SDK loads.
"""
