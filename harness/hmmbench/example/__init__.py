# SPDX-License-Identifier: GPL-2.0-or-later
"""One example: its recipe and schedule, the machine it runs on, and what became of it."""
