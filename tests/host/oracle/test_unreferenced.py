# SPDX-License-Identifier: GPL-2.0-or-later
"""What kmemleak says, read."""

from __future__ import annotations

from hmmbench.oracle.unreferenced import objects

SAID = """unreferenced object 0xffff888004c2a000 (size 64):
  comm "kworker/u8:1", pid 34, jiffies 4294940021
  hex dump (first 32 bytes):
    00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00  ................
  backtrace (crc 0):
    __kmalloc_cache_noprof+0x1a2/0x2d0
    hg_fault_work+0x134/0x9d0 [hmm_gpu]
    process_one_work+0x1f0/0x500
unreferenced object 0xffff888004c2b000 (size 32):
  comm "swapper/0", pid 1, jiffies 4294892296
  backtrace (crc 5d1ac6a1):
    __kmalloc_node_track_caller_noprof+0x20f/0x3c0
    acpi_ns_internalize_name+0x63/0xd0
unreferenced object 0xffff888004c2c000 (size 16):
  backtrace:
    [<00000000a0a0a0a0>] dmirror_open+0x20/0x100 [test_hmm]
"""


def test_what_a_module_allocated_is_found() -> None:
    found = objects(SAID)
    assert [where for where, _ in found] == [
        "hg_fault_work of hmm_gpu", "dmirror_open of test_hmm",
    ]  # fmt: skip
    assert found[0][1].startswith("unreferenced object 0xffff888004c2a000")
    assert "acpi" not in found[0][1]


def test_nothing_said_is_nothing_found() -> None:
    assert objects("") == []
