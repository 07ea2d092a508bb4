# SPDX-License-Identifier: GPL-2.0-or-later
"""What every part needs: errors, paths, words for people, the host, processes, interruption."""
