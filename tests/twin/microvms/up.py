"""``make up`` with sandboxes in MicroVMs, which are nowhere on this machine: ``make up`` itself has no such setting."""

import sys

from moorage.local.stack import main

if __name__ == "__main__":
    sys.exit(main(provisioner="lambda_microvm"))
