# SPDX-License-Identifier: GPL-2.0-or-later
"""hmmbench: property tests of Linux HMM mirroring and migration on an emulated GPU."""

__version__ = "0.1.0"
