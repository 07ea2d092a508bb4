# SPDX-License-Identifier: GPL-2.0-or-later
"""The report as one HTML page for people (docs/report.md)."""

from hmmbench.report.page.build import render, write

__all__ = ["render", "write"]
