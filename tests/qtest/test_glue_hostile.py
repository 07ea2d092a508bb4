# SPDX-License-Identifier: GPL-2.0-or-later
"""Input nobody should give: registers, rings and migration streams out of a random generator.

The device may refuse, halt a context or count an error. It may not abort, hang, or be unusable
after a reset.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from qtest_machine import BAR_REGS, BAR_VRAM, GPU, MIB, RAM_SIZE, RINGS, Machine, eventually, hw
from qtest_work import Launch, spin
from test_glue_migration import plain_save

from hmmbench.vm.errors import VmDied

Start = Callable[..., Machine]

FUZZ = settings(
    max_examples=40,
    deadline=None,
    phases=[Phase.generate, Phase.shrink],
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)

# Registers that exist, neighbours of them, and anything.
_KNOWN = sorted(
    value for name, value in hw.items() if name.startswith("HG_REG_") and value < hw.HG_BAR0_SIZE
)
_OFFSETS = st.one_of(
    st.builds(lambda base, step: base + 4 * step, st.sampled_from(_KNOWN), st.integers(0, 64)),
    st.integers(0, hw.HG_BAR0_SIZE - 8),
)
_VALUES = st.one_of(
    st.integers(0, 4),
    st.sampled_from([2**31, 2**32 - 1, 2**63, 2**64 - 1, RINGS, RAM_SIZE, BAR_REGS, BAR_VRAM]),
    st.integers(0, 2**64 - 1),
)
_ACCESSES = st.lists(
    st.tuples(_OFFSETS, _VALUES, st.sampled_from([1, 2, 4, 4, 4, 8]), st.booleans()),
    max_size=60,
)


def _sound(machine: Machine) -> None:
    """After a reset everything works."""
    machine.flr()
    machine.enable_device()
    machine.gpu.start()
    launch = Launch(machine)
    launch.begin(machine.gpu)
    launch.finish(machine)
    machine.flr()
    machine.enable_device()


@FUZZ
@given(accesses=_ACCESSES)
def test_registers(machine: Machine, accesses: list[tuple[int, int, int, bool]]) -> None:
    for offset, value, width, write in accesses:
        if write:
            machine.store(BAR_REGS + offset, value, width)
        else:
            machine.load(BAR_REGS + offset, width)
    machine.clock_step(1_000_000)
    machine.reset_allocator()
    _sound(machine)


_WORD = st.one_of(
    st.integers(0, 64),
    st.sampled_from([2**12, 2**30, 2**30 + 1, 2**32 - 1, 2**48, 2**63, 2**64 - 1, 2**64 - 64]),
    st.builds(lambda n: n * 4096, st.integers(0, RAM_SIZE // 4096 + 16)),
    st.sampled_from([BAR_REGS, BAR_VRAM, 0xFEE0_0000, 0xFFFF_F000, 0xF_0000]),
)
_DESCRIPTOR = st.tuples(
    st.integers(0, 7),
    st.integers(0, 2**24 - 1) | st.sampled_from([0, 0x100, 0x500, 0x1800]),
    st.lists(_WORD, min_size=7, max_size=7),
)


@FUZZ
@given(descriptors=st.lists(_DESCRIPTOR, max_size=20), priv=st.booleans())
def test_descriptors(
    machine: Machine, descriptors: list[tuple[int, int, list[int]]], priv: bool
) -> None:
    machine.reset_allocator()
    machine.gpu.start()
    context = machine.gpu.context(0, priv=priv)
    for opcode, flags, words in descriptors:
        context.submit(opcode | flags << 8, *words)
    for _ in range(5):
        machine.clock_step(1_000_000)
        machine.gpu.r32(hw.HG_REG_STATUS)
    _sound(machine)


def test_ring_full_of_noise(machine: Machine) -> None:
    """Rings, page tables and lists that are noise, and doorbells that point anywhere in them."""
    random = Random(1)
    for _ in range(10):
        machine.reset_allocator()
        noise = 8 * MIB
        machine.write(noise, random.randbytes(MIB))
        machine.gpu.start()
        for number in range(hw.HG_NUM_CTXS):
            registers = hw.HG_REG_CTX + number * hw.HG_CTX_STRIDE
            page = noise + random.randrange(200) * 4096
            asid = number % hw.HG_NUM_ASIDS
            machine.gpu.w64(
                hw.HG_REG_ASID + asid * hw.HG_ASID_STRIDE, page | random.choice([0x1, 0x11])
            )
            machine.gpu.w64(registers + hw.HG_CTX_RING_BASE, page)
            machine.gpu.w32(registers + hw.HG_CTX_RING_SIZE, 64)
            machine.gpu.w32(registers + hw.HG_CTX_ASID, asid)
            machine.gpu.w32(registers + hw.HG_CTX_CTRL, random.choice([1, 3]))
            machine.gpu.w32(
                hw.HG_REG_DOORBELL + number * hw.HG_DOORBELL_STRIDE, random.randrange(80)
            )
        machine.clock_step(10_000_000)
        _sound(machine)


def test_configuration_space(machine: Machine) -> None:
    """Random writes anywhere in the function's 4 KiB while it works."""
    random = Random(3)
    for _ in range(20):
        machine.gpu.start()
        spin(machine)
        for _ in range(100):
            offset = random.randrange(0, 4096, 4)
            machine.set_config(GPU, offset, random.getrandbits(32))
        machine.reset_allocator()
        machine.enumerate()
        _sound(machine)


class Stream:
    """A plain migration stream with work in flight, and where the core's bytes are in it."""

    def __init__(self, start: Start, folder: Path) -> None:
        machine = start("", "-trace", "hmm_gpu_save")
        machine.enumerate()
        machine.gpu.start()
        Launch(machine).begin(machine.gpu)
        spin(machine)
        file = folder / "good"
        plain_save(machine, file)
        words = next(line for line in machine.log().splitlines() if "hmm_gpu_save" in line)
        self.length = int(words.split()[-2])
        machine.close()
        self.data = file.read_bytes()
        # The length, the bytes, and the footer of the section with its number.
        prefix = struct.pack(">I", self.length)
        at = self.data.find(b"/hmm-gpu")
        while True:
            at = self.data.index(prefix, at + 1)
            if self.data[at + 4 + self.length : at + 5 + self.length] == b"\x7e":
                break
        self.at = at + 4

    def core(self) -> bytes:
        return self.data[self.at : self.at + self.length]

    def with_core(self, core: bytes, length: int | None = None) -> bytes:
        claimed = len(core) if length is None else length
        head, tail = self.data[: self.at - 4], self.data[self.at + self.length :]
        return head + struct.pack(">I", claimed) + core + tail


@pytest.fixture
def stream(start: Start, tmp_path: Path) -> Stream:
    return Stream(start, tmp_path)


def _load(start: Start, tmp_path: Path, data: bytes) -> Machine | str:
    """The machine that took the stream, or QEMU's words if it refused it in good order."""
    file = tmp_path / "bad"
    file.write_bytes(data)
    try:
        machine = start("", "-incoming", f"file:{file}")
        eventually(
            "loaded", lambda: machine.qmp("query-status")["status"] not in ("inmigrate",), 30
        )
    except VmDied as died:
        # A signal would be an abort or a wild access.
        if died.exit_status != 1 or "error while loading" not in str(died):
            raise
        return str(died)
    return machine


def test_good_stream_is_taken(stream: Stream, start: Start, tmp_path: Path) -> None:
    assert isinstance(_load(start, tmp_path, stream.with_core(stream.core())), Machine)


@pytest.mark.parametrize(
    ("length", "words"),
    [
        (0, "bad length"),
        (1, "device state refused"),
        (100, "device state refused"),
        (2**25, "device state is cut short"),
        (2**26, "bad length"),  # no memory for it, not even for a moment
        (2**32 - 1, "bad length"),
    ],
)
def test_bad_length(stream: Stream, start: Start, tmp_path: Path, length: int, words: str) -> None:
    said = _load(start, tmp_path, stream.with_core(stream.core(), length))
    assert isinstance(said, str)
    assert words in said


@pytest.mark.parametrize("cut", [1, 8, 1000])
def test_short_core(stream: Stream, start: Start, tmp_path: Path, cut: int) -> None:
    said = _load(start, tmp_path, stream.with_core(stream.core()[:-cut]))
    assert isinstance(said, str)
    assert "device state refused" in said


def test_bit_flips(stream: Stream, start: Start, tmp_path: Path) -> None:
    """What is taken must be a state the device can live with: it runs and can be reset."""
    random = Random(5)
    refused = 0
    for _ in range(15):
        core = bytearray(stream.core())
        for _ in range(random.choice([1, 3, 30])):
            at = random.choice([random.randrange(len(core)), random.randrange(4096)])
            core[at] = random.choice([0, 0xFF, core[at] ^ 1 << random.randrange(8)])
        machine = _load(start, tmp_path, stream.with_core(bytes(core)))
        if isinstance(machine, str):
            refused += 1
            continue
        machine.qmp("cont")
        machine.clock_step(10_000_000)
        machine.gpu.r32(hw.HG_REG_STATUS)
        _sound(machine)
        machine.close()
    assert refused > 0


def test_noise_as_core(stream: Stream, start: Start, tmp_path: Path) -> None:
    said = _load(start, tmp_path, stream.with_core(Random(6).randbytes(stream.length)))
    assert isinstance(said, str)
    assert "device state refused" in said
