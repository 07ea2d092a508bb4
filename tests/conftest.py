# SPDX-License-Identifier: GPL-2.0-or-later
"""What all tests need."""

import signal

# A shell starts background jobs with Ctrl-C ignored, and children inherit that: then nothing
# could be interrupted, and the tests of interruption would test the shell.
signal.signal(signal.SIGINT, signal.default_int_handler)
