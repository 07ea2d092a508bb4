# SPDX-License-Identifier: GPL-2.0-or-later
"""Entry point of `python -m hmmbench`, which the launcher at the root runs."""

import sys

from hmmbench.cli import main

if __name__ == "__main__":
    sys.exit(main())
