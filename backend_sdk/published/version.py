"""The version of the contract, and the versions that were published before it.

Does not: import torch or any op: `backend-sdk --version` prints the version.
"""

from __future__ import annotations

from dataclasses import dataclass

# The form of the JSON document. A reader refuses a number that it does not know.
FORMAT = 1


@dataclass(frozen=True)
class Release:
    """A version of the contract. ``date`` is the day of its release (ISO 8601), empty until then.

    A version that is released is never published again with another meaning.
    """

    version: str
    date: str
    summary: str


# Newest first. The first is the version of the contract in `backend_sdk.prims`.
RELEASES = (Release("1.0.0", "", "The first version of the contract."),)

VERSION = RELEASES[0].version
