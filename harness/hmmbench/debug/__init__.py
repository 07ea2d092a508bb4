# SPDX-License-Identifier: GPL-2.0-or-later
"""A debugger at the machine that failed, and back in its time."""
