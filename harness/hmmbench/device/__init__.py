# SPDX-License-Identifier: GPL-2.0-or-later
"""The device core without a machine: qemu-device/core/ compiled for this host, driven through
cffi. Serves `hmmbench conformance` and the property tests of tests/core."""
