"""What sizes are counted in."""

from typing import Final

KIB: Final = 1024
MIB: Final = 1024 * KIB
