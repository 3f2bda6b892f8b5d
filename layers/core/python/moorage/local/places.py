"""Where the files lie that are no Python modules of this package."""

from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[5]
"""Of the checkout."""
LOOP: Final = Path(__file__).resolve().parents[1] / "loop" / "agent_loop.asl.json"
"""The definition of the state machine."""
