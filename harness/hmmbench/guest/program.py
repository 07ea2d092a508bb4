# SPDX-License-Identifier: GPL-2.0-or-later
"""Messages between the bench and the guest agent: PROGRAM out, RESULT in.

The numbers mirror ``guest-driver/user/agent/base/program.h``; ``tests/host/guest/test_protocol.py``
compares every one of them with the header, and each field of the structs, and the agent's
HELLO answers their sizes, so the two sides cannot drift apart unnoticed.

An operation is an :class:`Op`; a memory access is a plain tuple (there are many
of them and they are made and read in bulk).
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from enum import IntEnum

PROTOCOL_VERSION = 1
BUSY_TIMES = 6
TIMEOUT_STILL = 1
TIMEOUT_BUSY = 2
MAX_PROCS = 4
MAX_ACTORS = 4
MAX_REGIONS = 16
MAX_FILES = 4
MAX_OPS = 4096
MAX_ACCESSES = 0x10000
REGION_BASE = 0x200000000000
REGION_SIZE = 0x4000000
STACK_PAGES = 32
GLOBAL_PAGES = 32
PAGE = 4096
HUGE = 2 << 20

#: A program's time limit, unless it says another (milliseconds; examples take some tens).
TIMEOUT_MS = 10000

PF_COUNTERS = 1
F_CTX1 = 0x1
F_NOWAIT = 0x2
F_THREAD = 0x8

RES_SKIPPED = 1
RES_KILLED = 2

# Of Linux on x86-64
PROT_NONE = 0
PROT_READ = 1
PROT_WRITE = 2
PROT_RW = PROT_READ | PROT_WRITE

# Of the driver and the device (hmm_gpu_drm.h, hmm_gpu_hw.h)
MIGRATE_SYSTEM = 0
MIGRATE_DEVICE = 1
MIGRATE_MAP = 1
POLICY_MAP = 0
POLICY_MIGRATE = 1
POLICY_EXCLUSIVE = 2  # or'ed to one of them
ERR_FAULT = 1
ERR_BUS = 7
REASON_POISON = 6
Q_GPU_VALID = 0x01
Q_GPU_WRITE = 0x02
Q_GPU_ATOMIC = 0x04
Q_GPU_VRAM = 0x08
Q_GPU_HUGE = 0x10
Q_GPU_EXCLUSIVE = 0x20
Q_CPU_READ = 0x100
Q_CPU_WRITE = 0x200
Q_CPU_DEVICE = 0x400
Q_CPU_ERROR = 0x800


class MapKind(IntEnum):
    """HB_MAP_*"""

    ANON_PRIVATE = 0
    ANON_SHARED = 1
    FILE_PRIVATE = 2
    FILE_SHARED = 3
    HUGETLB_PRIVATE = 4
    HUGETLB_SHARED = 5
    STACK = 6
    GLOBAL = 7


class Acc(IntEnum):
    """HB_ACC_*"""

    READ = 0
    WRITE = 1
    ADD = 2
    XCHG = 3
    CAS = 4
    READ32 = 5
    WRITE32 = 6
    DELAY = 7


class Ast(IntEnum):
    """HB_AST_*: how an access ended."""

    NOT_DONE = 0
    DONE = 1
    SIGSEGV = 2
    SIGBUS = 3


#: kind, region, lane, offset, value, expect
Access = tuple[int, int, int, int, int, int]

_HEADER = struct.Struct("<IIIIII4IQ2Q")
_OP = struct.Struct("<HBBIHHIIIQQQQQ")
_ACCESS = struct.Struct("<HHIQQQ")
_RESULT = struct.Struct("<8IQII2Q")
_OP_RESULT = struct.Struct("<iIIIIIQQQiIQ")
_ACCESS_RESULT = struct.Struct("<QII")

#: What HELLO must answer
STRUCT_SIZES = {
    "program": _HEADER.size,
    "op": _OP.size,
    "access": _ACCESS.size,
    "result": _RESULT.size,
    "op_result": _OP_RESULT.size,
    "access_result": _ACCESS_RESULT.size,
}


@dataclass(slots=True)
class Op:
    """One operation; fields as in ``struct hb_op``, `acc` its accesses."""

    op: int
    proc: int = 0
    actor: int = 0
    phase: int = 0
    region: int = 0
    flags: int = 0
    arg: int = 0
    off: int = 0
    len: int = 0
    a: int = 0
    b: int = 0
    c: int = 0
    acc: list[Access] = field(default_factory=list)


@dataclass(slots=True)
class Program:
    """One example: what one PROGRAM message carries; and `kill_ms`, for the bench: how long the
    agent may need, beyond its limits, to kill what does not end (it waits a second for it).
    `again`: it runs so many times more, with a look each time at what that leaves in the kernel
    (oracle/growth.py).
    """

    ops: list[Op]
    file_pages: tuple[int, int, int, int] = (0, 0, 0, 0)
    timeout_ms: int = TIMEOUT_MS
    settle_ms: int = 2000
    flags: int = 0
    seed: int = 0
    kill_ms: int = 1500
    again: int = 0

    def encode(self) -> bytes:
        """The payload of HB_MSG_PROGRAM.

        Raises ValueError if the program is larger than the protocol allows.
        """
        accesses: list[Access] = []
        parts: list[bytes] = []
        for o in self.ops:
            first = len(accesses)
            accesses += o.acc
            parts.append(
                _OP.pack(
                    o.op, o.proc, o.actor, o.phase, o.region, o.flags, first, len(o.acc),
                    o.arg, o.off, o.len, o.a, o.b, o.c,
                )
            )  # fmt: skip
        if len(self.ops) > MAX_OPS or len(accesses) > MAX_ACCESSES:
            raise ValueError(f"program too large: {len(self.ops)} ops, {len(accesses)} accesses")
        pack = _ACCESS.pack
        parts += [pack(*x) for x in accesses]
        head = _HEADER.pack(
            PROTOCOL_VERSION, len(self.ops), len(accesses), self.flags, self.timeout_ms,
            self.settle_ms, *self.file_pages, self.seed, self.again, 0,
        )  # fmt: skip
        return head + b"".join(parts)

    @staticmethod
    def decode(data: bytes) -> Program:
        """The inverse of `encode` (for executors written in Python).

        Raises ValueError on a malformed message.
        """
        if len(data) < _HEADER.size:
            raise ValueError("program: short header")
        head = _HEADER.unpack_from(data)
        nops, nacc = head[1], head[2]
        if head[0] != PROTOCOL_VERSION:
            raise ValueError(f"program: version {head[0]}, not {PROTOCOL_VERSION}")
        end_ops = _HEADER.size + nops * _OP.size
        if len(data) != end_ops + nacc * _ACCESS.size:
            raise ValueError("program: length does not match its header")
        accesses = list(_ACCESS.iter_unpack(data[end_ops:]))
        ops = []
        for t in _OP.iter_unpack(data[_HEADER.size : end_ops]):
            first, count = t[6], t[7]
            ops.append(
                Op(t[0], t[1], t[2], t[3], t[4], t[5], t[8], t[9], t[10], t[11], t[12], t[13],
                   accesses[first : first + count])
            )  # fmt: skip
        return Program(
            ops, (head[6], head[7], head[8], head[9]), head[4], head[5], head[3], head[10],
            again=head[11],
        )  # fmt: skip


@dataclass(slots=True)
class OpResult:
    """``struct hb_op_result`` with the op's accesses as (value, status, order)."""

    status: int = 0
    gpu_status: int = 0
    reason: int = 0
    aux0: int = 0
    aux1: int = 0
    fault_addr: int = 0
    fault_region: int = -1
    time_ns: int = 0
    data: bytes = b""
    acc: list[tuple[int, int, int]] = field(default_factory=list)
    #: CLOCK_MONOTONIC of the guest when it began (ns); 0: not known
    start_ns: int = 0


@dataclass(slots=True)
class Result:
    """One decoded HB_MSG_PROGRAM answer."""

    ops: list[OpResult]
    #: TIMEOUT_*; 0: it ended in time
    timeout: int = 0
    live_nonzero: bool = False
    elapsed_ns: int = 0
    died: int = 0
    died_signal: int = 0
    stuck: int = 0
    counters_before: str = ""
    counters_after: str = ""
    #: the driver had counters, and they cannot be read any more
    live_unread: bool = False
    #: words of memory that no program has and that were changed
    strays: int = 0

    def encode(self) -> bytes:
        """The wire form (for executors written in Python)."""
        data = b"".join(o.data for o in self.ops)
        before, after = self.counters_before.encode(), self.counters_after.encode()
        naccs = sum(len(o.acc) for o in self.ops)
        parts = [
            _RESULT.pack(
                PROTOCOL_VERSION, len(self.ops), naccs, len(data), len(before), len(after),
                self.timeout, self.live_nonzero | self.live_unread << 1, self.elapsed_ns, self.died,
                self.died_signal, self.stuck, self.strays,
            )
        ]  # fmt: skip
        at = 0
        for o in self.ops:
            parts.append(
                _OP_RESULT.pack(
                    o.status, o.gpu_status, o.reason, at, len(o.data),
                    o.start_ns & 0xFFFFFFFF, o.aux0, o.aux1,
                    o.fault_addr, o.fault_region, o.start_ns >> 32, o.time_ns,
                )
            )  # fmt: skip
            at += len(o.data)
        parts += [_ACCESS_RESULT.pack(*x) for o in self.ops for x in o.acc]
        return b"".join([*parts, data, before, after])

    @staticmethod
    def decode(data: bytes, program: Program) -> Result:
        """The answer to `program`.

        Raises ValueError when the answer is malformed or of another program.
        """
        if len(data) < _RESULT.size:
            raise ValueError("result: short header")
        h = _RESULT.unpack_from(data)
        nops, nacc, dlen, blen, alen = h[1:6]
        naccs = sum(len(o.acc) for o in program.ops)
        if h[0] != PROTOCOL_VERSION or nops != len(program.ops) or nacc != naccs:
            raise ValueError(f"result: version {h[0]}, {nops} ops, {nacc} accesses do not match")
        p_acc = _RESULT.size + nops * _OP_RESULT.size
        p_data = p_acc + nacc * _ACCESS_RESULT.size
        if len(data) != p_data + dlen + blen + alen:
            raise ValueError("result: length does not match its header")
        accs = list(_ACCESS_RESULT.iter_unpack(data[p_acc:p_data]))
        ops = []
        at = 0
        for o, t in zip(
            program.ops, _OP_RESULT.iter_unpack(data[_RESULT.size : p_acc]), strict=True
        ):
            n = len(o.acc)
            doff, dn = t[3], t[4]
            if doff + dn > dlen:
                raise ValueError("result: data of an operation lies outside the message")
            blob = data[p_data + doff : p_data + doff + dn] if dn else b""
            ops.append(
                OpResult(
                    t[0], t[1], t[2], t[6], t[7], t[8], t[9], t[11], blob,
                    accs[at : at + n], t[10] << 32 | t[5],
                )
            )  # fmt: skip
            at += n
        text = data[p_data + dlen :].decode("utf-8", "replace")
        return Result(
            ops, h[6], bool(h[7] & 1), h[8], h[9], h[10], h[11], text[:blen], text[blen:],
            bool(h[7] & 2), h[12],
        )
