"""``python -m moorage``: the same as the ``moorage`` command."""

import sys

from moorage.cli.main import main

sys.exit(main())
