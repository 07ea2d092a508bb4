# SPDX-License-Identifier: GPL-2.0-or-later
"""Many examples: programs are drawn, run, repeated and made small; machines in parallel."""
