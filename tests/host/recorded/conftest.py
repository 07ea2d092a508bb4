# SPDX-License-Identifier: GPL-2.0-or-later
"""The tests here import recording.py by its name, as record.py does."""

import pytest

pytest.register_assert_rewrite("recording")
