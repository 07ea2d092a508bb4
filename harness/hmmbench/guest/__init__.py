# SPDX-License-Identifier: GPL-2.0-or-later
"""What runs inside the guest, seen from the bench: the agent and its messages."""
