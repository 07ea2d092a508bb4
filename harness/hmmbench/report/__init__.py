# SPDX-License-Identifier: GPL-2.0-or-later
"""What people and machines get to read: they draw what they are given."""
