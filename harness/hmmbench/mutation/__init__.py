# SPDX-License-Identifier: GPL-2.0-or-later
"""Drivers and kernels that are broken on purpose, and what the bench sees of it."""
