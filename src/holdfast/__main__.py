"""`python -m holdfast` is the same as `holdfast`."""

import sys

from holdfast.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
