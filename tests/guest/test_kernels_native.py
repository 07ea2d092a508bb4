# SPDX-License-Identifier: GPL-2.0-or-later
"""The GPU kernels' C source, compiled for the host and run thread by thread."""

from __future__ import annotations

import ctypes
import struct
import subprocess

import pytest
from host_agent import ROOT

from hmmbench.guest.program import Acc, Ast

USER = ROOT / "guest-driver" / "user"

GLUE = """
#include "hmm_gpu_kernel.h"
_Thread_local struct hmm_native_ids hmm_native_ids;
void set_thread(uint32_t tid, uint32_t bid, uint32_t ntid, uint32_t nbid)
{
    hmm_native_ids = (struct hmm_native_ids){ .tid = tid, .bid = bid, .ntid = ntid, .nbid = nbid };
}
"""


@pytest.fixture(scope="module")
def kernels(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    folder = tmp_path_factory.mktemp("native")
    (folder / "glue.c").write_text(GLUE)
    sources = [str(USER / "kernels" / f"{n}.c") for n in ("accesses", "measure")]
    subprocess.run(
        ["gcc", "-std=c11", "-O2", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC",
         "-DHMM_GPU_NATIVE", f"-I{USER / 'kernels'}",
         f"-I{ROOT / 'qemu-device' / 'include'}", str(folder / "glue.c"), *sources,
         "-o", str(folder / "k.so")],
        check=True,
    )  # fmt: skip
    return ctypes.CDLL(str(folder / "k.so"))


def launch(lib: ctypes.CDLL, name: str, args: ctypes.Array[ctypes.c_char], grid: int, block: int):
    for bid in range(grid):
        for tid in range(block):
            lib.set_thread(tid, bid, block, grid)
            lib[name](args)


def test_accesses(kernels: ctypes.CDLL) -> None:
    memory = (ctypes.c_uint64 * 8)()
    base = ctypes.addressof(memory)
    #        lane, kind, word, value, expect -> result
    script = [
        (0, Acc.WRITE, 0, 2**63, 0, 0),
        (0, Acc.READ, 0, 0, 0, 2**63),
        (0, Acc.ADD, 0, 5, 0, 2**63),
        (0, Acc.XCHG, 0, 6, 0, 2**63 + 5),
        (2, Acc.CAS, 0, 7, 5, 6),
        (2, Acc.CAS, 0, 7, 6, 6),
        (2, Acc.READ, 0, 0, 0, 7),
        (3, Acc.WRITE32, 1, 0x1_FFFFFFFF, 0, 0),
        (3, Acc.READ, 1, 0, 0, 0xFFFFFFFF),
        (3, Acc.READ32, 1, 0, 0, 0xFFFFFFFF),
        (3, Acc.DELAY, 1, 10, 0, 0),
        (5, Acc.WRITE, 2, 1, 0, 0),
    ]
    nlanes = 5  # lane 5 lies beyond and may not run
    entries = ctypes.create_string_buffer(32 * len(script))
    results = ctypes.create_string_buffer(16 * len(script))
    lanes = ctypes.create_string_buffer(8 * 8)
    for n, (_, kind, word, value, expect, _) in enumerate(script):
        # Results go to the slot the entry names, not to the entry's own number.
        struct.pack_into("<QHHIQQ", entries, 32 * n, base + 8 * word, kind, 0,
                         len(script) - 1 - n, value, expect)  # fmt: skip
    for lane in range(8):
        mine = [n for n, s in enumerate(script) if s[0] == lane]
        struct.pack_into("<II", lanes, 8 * lane, mine[0] if mine else 99, len(mine))
    args = ctypes.create_string_buffer(
        struct.pack("<QQQII", *map(ctypes.addressof, (lanes, entries, results)), nlanes, 0)
    )
    launch(kernels, "accesses", args, grid=2, block=4)
    got = list(struct.iter_unpack("<QII", results.raw))[::-1]
    assert got[:-1] == [(s[5], Ast.DONE, 0) for s in script[:-1]]
    assert got[-1] == (0, Ast.NOT_DONE, 0)
    assert list(memory[:3]) == [7, 0xFFFFFFFF, 0]


def test_touch_covers_each_page_once(kernels: ctypes.CDLL) -> None:
    pages = 37
    memory = ctypes.create_string_buffer(4096 * pages)
    total = ctypes.c_uint64(0)
    for write, value in ((1, 1000), (0, 0)):
        args = ctypes.create_string_buffer(
            struct.pack("<QQIIQQ", ctypes.addressof(memory), pages, write, 0, value,
                        0 if write else ctypes.addressof(total))
        )  # fmt: skip
        launch(kernels, "touch", args, grid=3, block=4)
    assert total.value == sum(1000 + n for n in range(pages))
    for n in range(pages):
        assert struct.unpack_from("<Q", memory, 4096 * n)[0] == 1000 + n


def test_latency_times_every_page(kernels: ctypes.CDLL) -> None:
    pages = 5
    memory = ctypes.create_string_buffer(4096 * pages)
    order = (ctypes.c_uint32 * pages)(4, 2, 0, 3, 1)
    times = (ctypes.c_uint64 * pages)()
    args = ctypes.create_string_buffer(
        struct.pack("<QQQQ", *map(ctypes.addressof, (memory, order, times)), pages)
    )
    launch(kernels, "latency", args, grid=1, block=2)
    assert all(times)
