# SPDX-License-Identifier: GPL-2.0-or-later
"""Oracles: each decides alone, from what it saw, whether something is wrong."""
