# SPDX-License-Identifier: GPL-2.0-or-later
"""Commands of the hmmbench program, one module each (see hmmbench.cli)."""
