"""Bounds of hosted environments."""

from typing import Final

from moorage.limits.units import KIB, MIB

ENVIRONMENT_FILES_MAX: Final = 500
"""Files that one request puts into an environment. Each is a copy in the bucket; eight are made at once."""

ENVIRONMENT_PACKAGES_MAX: Final = 50
"""Packages of one ecosystem. Their names stand in the container's record."""

ENVIRONMENT_PLUGINS_MAX: Final = 20
"""Plugins of one environment. Their names and descriptions stand in the container's record."""

PLUGIN_MANIFEST_BYTES_MAX: Final = 65_536

ENVIRONMENT_PACKAGE_CHARS_MAX: Final = 200

ENVIRONMENT_PATH_CHARS_MAX: Final = 1_024
"""Of a path below /workspace. Linux takes 4,096 bytes, and a character has up to four."""

ENVIRONMENT_SIZES: Final = {"small": "1g", "medium": "4g", "large": "16g"}
"""``container_size``, and the ``memory_limit`` that it stands for."""

ENVIRONMENT_PAGE_FILES_MAX: Final = 2_000
"""Files that the environments of one page show, or a single one's if they are more: some 300 KB. A page may be shorter for it."""

ENVIRONMENT_VARIABLES_MAX: Final = 100
SETUP_COMMANDS_MAX: Final = 50
SETUP_BYTES_MAX: Final = 200 * KIB
"""Of an environment's variables and setup commands together: they are one record, and an item of the table has 400 KB."""

SETUP_SECONDS_MAX: Final = 180
"""For all setup commands of a sandbox. A tool call waits for them, and a step has 330 s."""

SETUP_OUTPUT_CHARS_MAX: Final = 1_000
"""Of a setup command that fails: the end of its output is told."""

ENVIRONMENT_TEMPLATE_BYTES_MAX: Final = 4 * MIB
"""Of compact JSON, inline files in it: larger ones are named by ``file_id``."""
