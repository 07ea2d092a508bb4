# SPDX-License-Identifier: GPL-2.0-or-later
"""Results beside one another: of another checkout, of an older run, of parts."""
