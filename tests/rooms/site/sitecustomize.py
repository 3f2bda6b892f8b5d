"""Python imports this when a process starts that has the folder on its path: a stack all of whose processes know the dice."""

import os
from pathlib import Path

from moorage.tools.registry import ROOMS

from tests.rooms.dice import DeclaredDice

ROOMS.add(DeclaredDice(trace=Path(os.environ["DICE_TRACE"])))
