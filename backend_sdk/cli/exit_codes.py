"""What the exit codes of `backend-sdk` mean.

Does not: exit.
"""

from __future__ import annotations

FINE = 0
CHECK_FAILED = 1
USAGE = 2
BROKEN = 3

EXPLANATION = "Exit codes: 0 fine, 1 a check failed, 2 wrong usage or an unknown name, 3 a broken plugin or SDK error."
