"""The compiled module, from native/ (see docs/decisions/0002-native-philox.md)."""

from collections.abc import Sequence
from typing import SupportsIndex

from typing_extensions import Buffer

def philox_fill(out: Buffer, seed: SupportsIndex, stream: SupportsIndex) -> None: ...
def philox4x32_10(counter: Sequence[int], key: Sequence[int]) -> tuple[int, int, int, int]: ...
