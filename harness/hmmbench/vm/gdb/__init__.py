# SPDX-License-Identifier: GPL-2.0-or-later
"""gdb at a machine of the bench: see session.py, and docs/debugging.md for those who use it.

hmmbench_gdb.py runs inside gdb, in gdb's own Python, and imports nothing of the bench.
"""
