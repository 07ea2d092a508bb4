# SPDX-License-Identifier: GPL-2.0-or-later
"""Fixed sets beside the campaign: selftests, conformance, workloads, figures, the doctor."""
