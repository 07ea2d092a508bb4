# SPDX-License-Identifier: GPL-2.0-or-later
"""A recipe: one example as a readable JSON file, with everything needed to repeat it.

    {"hmmbench": "recipe", "version": 1, "oracle": ..., "message": ..., "kernel": ...,
     "seed": ..., "example": ..., "repeat": ..., "delays": [...], "inject": [...],
     "file_pages": [...], "ops": [{"op": "mmap", "kind": "anon_private", ...}, ...]}

"machine" is there if it is another than the usual one (vm/kinds.py): "iommu", "cpus-1+small".

A recipe of an exact machine has "cpus" and "schedule", and in "chain" the examples that ran before
it in the same machine, if it takes them; such a recipe fails each time.  "decisions" are part of
the schedule, by names that mean the same in another build:

    {"phase": 1, "at": "hmm_range_fault+0x1c4", "passage": 3, "hold_ns": 500000}

is whoever comes by there as the third in phase 1 of the program, held for half a millisecond.  In
"schedule", here and in a chain, places of at= and count= are "hmm_range_fault+0x1c4" or
"name+0x0[module]", always with the offset (holds.py resolves them).  "hash" is of all that was
decided when it failed, which is in decisions.log.gz beside the recipe; "built" says with which
kernel, driver, agent and device.

Operations of the same "phase" run at the same time if their process or actor differs.  An
access is a line: "write r1+0x1008 = 0x500000000", with "L3 " before it for GPU lane 3.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from hmmbench.base.errors import UsageError
from hmmbench.device import injection
from hmmbench.guest.program import (
    F_CTX1,
    F_NOWAIT,
    F_THREAD,
    MAX_ACTORS,
    MAX_PROCS,
    MAX_REGIONS,
    REGION_SIZE,
    Acc,
    Access,
    Op,
    Program,
)
from hmmbench.model import ops
from hmmbench.model.ops.jobs import GpuAccess
from hmmbench.oracle.mirror import MODES
from hmmbench.vm import kinds
from hmmbench.vm.spec import DEVICES

VERSION = 1

#: Of an exact machine.
MAX_CPUS = 64

#: Nanoseconds of a decision, and passages, at most: what the scheduler takes.
MAX_HOLD_NS, MAX_PASSAGE, MAX_PHASE = 1 << 40, 1 << 31, (1 << 16) - 1

#: What a recipe's execution depends on (build/depends.py), beside the recipe.
BUILT = ("kernel", "driver", "agent", "device")

#: A line of delays with all of USEC, PERMILLE, SEED and TIMES has so many.
NUMBERS = 4


@dataclass(frozen=True)
class Environment:
    """What surrounds a program: widened races in the driver, misbehaviour of the device.

    `delays`: lines for the driver's debugfs file ("NAME [at N | until OTHER] USEC [PERMILLE
    [SEED [TIMES]]]"); `inject`: rules of the device (docs/device.md); `audit`: the device's mirror
    audit (docs/audit.md); `rebind`: after the program the driver is unbound and bound again;
    `vram`: pages of VRAM that the driver may use (None: all); `schedule`: of an exact machine
    (schedules.py), "": as it comes; `again`: the program runs so many times more, for a look each
    time at what it leaves in the kernel (oracle/growth.py).
    """

    delays: tuple[str, ...] = ()
    inject: tuple[str, ...] = ()
    audit: str = "off"
    rebind: bool = False
    vram: int | None = None
    schedule: str = ""
    again: int = 0

    @property
    def crowded(self) -> bool:
        """Whether its schedule holds everybody again and again: what works takes longer then."""
        return any(word.startswith("crowd=") for word in self.schedule.split())

    @property
    def counted(self) -> bool:
        """Something in it counts from when it was set: it is set again for each execution."""
        return any(
            " at " in x or sum(word.isdigit() for word in x.split()) == NUMBERS
            for x in self.delays
        ) or any("count=" in x or "nth=" in x for x in self.inject)

    @property
    def watch_ms(self) -> int:
        """How often the driver is to look again by itself, 0: not at all."""
        return injection.watch_ms(self.inject)


@dataclass(frozen=True)
class Anchor:
    """A decision: who comes to `at` as the `passage`th (from 1) in `phase` of the program is held.

    `at`: "function+0x12", "function+0x12 [module]", or an address.
    """

    phase: int
    at: str
    passage: int
    hold_ns: int

    def __str__(self) -> str:
        return f"phase {self.phase}, passage {self.passage} of {self.at}"


@dataclass(frozen=True)
class Link:
    """An example of a chain."""

    program: Program
    environment: Environment


@dataclass
class Recipe:
    """One example and where it comes from.

    `repeat`: executions one replay is made of; `device`: on which one, of DEVICES; `machine`:
    another than the usual one (vm/kinds.py); `cpus`: of an exact machine (0: it is one with
    threads); `chain`: what runs in it before; `hash`: of its decisions then (hmm-exact-log.c; 0:
    not known); `decisions`: the list of its schedule; `built`: by name of BUILT, a hash of what it
    ran with.
    """

    program: Program
    environment: Environment = field(default_factory=Environment)
    oracle: str = ""
    message: str = ""
    kernel: str = ""
    seed: int = 0
    example: int = -1
    repeat: int = 20
    device: str = ""
    cpus: int = 0
    chain: tuple[Link, ...] = ()
    hash: int = 0
    decisions: tuple[Anchor, ...] = ()
    built: Mapping[str, str] = field(default_factory=dict)
    machine: str = ""

    @property
    def exact(self) -> bool:
        return bool(self.cpus)

    def to_json(self) -> dict[str, Any]:
        return {
            "hmmbench": "recipe",
            "version": VERSION,
            "oracle": self.oracle,
            "message": self.message,
            "kernel": self.kernel,
            "seed": self.seed,
            "example": self.example,
            "repeat": self.repeat,
            **({self.device: True} if self.device else {}),
            **({"machine": self.machine} if self.machine else {}),
            **({"cpus": self.cpus, "hash": f"{self.hash:#x}"} if self.exact else {}),
            **({"built": dict(self.built)} if self.built else {}),
            **_link_to_json(Link(self.program, self.environment)),
            **({"decisions": [asdict(one) for one in self.decisions]} if self.decisions else {}),
            **({"chain": [_link_to_json(one) for one in self.chain]} if self.chain else {}),
        }

    def write(self, path: Path) -> None:
        """One operation a line, so that a recipe can be read and edited."""
        data = self.to_json()
        lists = {name: data.pop(name) for name in ("decisions", "ops", "chain") if name in data}
        text = json.dumps(data, indent=1)[:-2]
        for name, items in lists.items():
            lines = ",\n  ".join(json.dumps(one) for one in items)
            text += f',\n "{name}": [\n  {lines}\n ]'
        path.write_text(text + "\n}\n")

    @staticmethod
    def read(path: Path) -> Recipe:
        """Raises UsageError with the place of the mistake if the file is no recipe."""
        try:
            data = json.loads(path.read_text())
        except OSError as error:
            raise UsageError(f"cannot read the recipe {path}: {error.strerror}") from error
        except ValueError as error:
            raise UsageError(f"{path} is no recipe: not JSON ({error})") from error
        try:
            return Recipe.from_json(data)
        except (KeyError, TypeError, ValueError) as error:
            what = f"{error.args[0]} is missing" if isinstance(error, KeyError) else str(error)
            raise UsageError(f"{path} is no recipe: {what}") from error

    @staticmethod
    def from_json(data: Any) -> Recipe:
        """Raises KeyError, TypeError or ValueError."""
        if not isinstance(data, dict) or data.get("hmmbench") != "recipe":
            raise ValueError('no object with "hmmbench": "recipe"')
        if data.get("version") != VERSION:
            raise ValueError(f"version {data.get('version')}, this bench reads {VERSION}")
        link = _link_from_json(data)
        cpus = _number(data.get("cpus", 0), "cpus")
        if not 0 <= cpus <= MAX_CPUS:
            raise ValueError(f"cpus {cpus}: at most {MAX_CPUS}")
        if link.environment.schedule and not cpus:
            raise ValueError("a schedule is of an exact machine: cpus is missing")
        chain = tuple(
            _chain_link(n, one)
            for n, one in enumerate(_list(data, "chain") if "chain" in data else [])
        )
        if chain and not cpus:
            raise ValueError("a chain is of an exact machine: cpus is missing")
        anchors = tuple(
            _anchor(n, one)
            for n, one in enumerate(_list(data, "decisions") if "decisions" in data else [])
        )
        if anchors and not cpus:
            raise ValueError("decisions are of an exact machine: cpus is missing")
        built = data.get("built", {})
        if not isinstance(built, dict) or not all(isinstance(v, str) for v in built.values()):
            raise TypeError("built must be an object of strings")
        machine = data.get("machine", "")
        if not isinstance(machine, str):
            raise TypeError("machine must be a string")
        try:
            kinds.kinds(machine)
        except UsageError as error:
            raise ValueError(error.message) from error
        return Recipe(
            link.program,
            link.environment,
            str(data.get("oracle", "")),
            str(data.get("message", "")),
            str(data.get("kernel", "")),
            _number(data.get("seed", 0), "seed"),
            _number(data.get("example", -1), "example"),
            max(1, _number(data.get("repeat", 20), "repeat")),
            next((name for name in DEVICES if name and _flag(data, name)), ""),
            cpus,
            chain,
            _number(data.get("hash", 0), "hash"),
            anchors,
            built,
            machine,
        )  # fmt: skip

    def with_program(self, program: Program) -> Recipe:
        return replace(self, program=program)


def _link_to_json(link: Link) -> dict[str, Any]:
    env = link.environment
    return {
        "delays": list(env.delays),
        "inject": list(env.inject),
        "audit": env.audit,
        **({"rebind": True} if env.rebind else {}),
        **({} if env.vram is None else {"vram": env.vram}),
        **({"schedule": env.schedule} if env.schedule else {}),
        **({"again": env.again} if env.again else {}),
        "file_pages": list(link.program.file_pages),
        "ops": [op_to_json(o) for o in link.program.ops],
    }


def _link_from_json(data: Mapping[str, Any]) -> Link:
    ops = [op_from_json(i, o) for i, o in enumerate(_list(data, "ops"))]
    pages = [_number(p, "file_pages") for p in _list(data, "file_pages")]
    if len(pages) != 4:
        raise ValueError("file_pages must be 4 numbers")
    schedule = data.get("schedule", "")
    if not isinstance(schedule, str):
        raise TypeError("schedule must be a string")
    return Link(
        Program(ops, (pages[0], pages[1], pages[2], pages[3])),
        Environment(
            _strings(data, "delays"),
            tuple(injection.translated(rule) for rule in _strings(data, "inject")),
            _audit(data),
            _flag(data, "rebind"),
            None if "vram" not in data else _number(data["vram"], "vram"),
            schedule,
            _number(data.get("again", 0), "again"),
        ),
    )  # fmt: skip


def _anchor(number: int, data: Any) -> Anchor:
    where = f"decision {number}"
    wanted = ("phase", "at", "passage", "hold_ns")
    if not isinstance(data, dict) or set(data) != set(wanted):
        raise ValueError(f"{where}: must be an object with {', '.join(wanted)}")
    at = data["at"]
    if not isinstance(at, str) or not at:
        raise TypeError(f"{where}: at must name a place")
    if at.startswith("0x") and not re.fullmatch(r"0x[0-9a-fA-F]{1,16}", at):
        raise ValueError(f"{where}: at {at!r} is no address")
    found = Anchor(
        _number(data["phase"], f"{where}: phase"), at,
        _number(data["passage"], f"{where}: passage"),
        _number(data["hold_ns"], f"{where}: hold_ns"),
    )  # fmt: skip
    for name, least, most in (
        ("phase", 0, MAX_PHASE), ("passage", 1, MAX_PASSAGE), ("hold_ns", 1, MAX_HOLD_NS)
    ):  # fmt: skip
        if not least <= getattr(found, name) <= most:
            raise ValueError(f"{where}: {name} must be {least} to {most}")
    return found


def _chain_link(number: int, data: Any) -> Link:
    if not isinstance(data, dict):
        raise TypeError(f"chain: example {number} must be an object")
    try:
        return _link_from_json(data)
    except (KeyError, TypeError, ValueError) as error:
        what = f"{error.args[0]} is missing" if isinstance(error, KeyError) else str(error)
        raise ValueError(f"chain: example {number}: {what}") from error


def _flag(data: Mapping[str, Any], name: str) -> bool:
    wanted = data.get(name, False)
    if not isinstance(wanted, bool):
        raise ValueError(f"{name} must be true or false")
    return wanted


def _audit(data: Mapping[str, Any]) -> str:
    mode = data.get("audit", "off")
    if mode not in MODES:
        raise ValueError(f"audit must be one of {', '.join(MODES)}")
    return str(mode)


def _list(data: Mapping[str, Any], name: str) -> list[Any]:
    value = data[name]
    if not isinstance(value, list):
        raise TypeError(f"{name} must be a list")
    return value


def _strings(data: Mapping[str, Any], name: str) -> tuple[str, ...]:
    values = data.get(name, [])
    if not isinstance(values, list) or not all(isinstance(v, str) for v in values):
        raise TypeError(f"{name} must be a list of strings")
    return tuple(values)


def _number(value: Any, name: str) -> int:
    if isinstance(value, str):
        value = int(value, 0)
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{name} must be a number")
    return value


def op_to_json(o: Op) -> dict[str, Any]:
    """An operation with names for numbers; what is 0 and not essential is left out."""
    operation = ops.of(o)
    out: dict[str, Any] = {"op": operation.name, "phase": o.phase, "proc": o.proc}
    if o.actor:
        out["actor"] = o.actor
    if o.flags & F_CTX1:
        out["ctx"] = 1
    if o.flags & F_NOWAIT:
        out["nowait"] = True
    if o.flags & F_THREAD:
        out["thread"] = True
    for field_ in operation.fields:
        value = getattr(o, field_.at)
        if field_.words is not None:
            out[field_.name] = field_.words.get(value, value)
        elif value or field_.name in ("region", "off"):
            out[field_.name] = hex(value) if field_.hex else value
    if o.acc:
        out["accesses"] = [access_to_text(a, o.op == GpuAccess.number) for a in o.acc]
    return out


def op_from_json(index: int, data: Any) -> Op:
    """Raises ValueError or TypeError with the operation's number in the text."""
    where = f"operation {index}"
    if not isinstance(data, dict) or not isinstance(data.get("op"), str):
        raise TypeError(f'{where}: must be an object with "op"')
    try:
        operation = ops.NAMED[data["op"]]
    except KeyError:
        raise ValueError(
            f"{where}: there is no operation {data['op']!r} (one from outside: --operations DIR)"
        ) from None
    try:
        o = Op(operation.number, _field(data, "proc", MAX_PROCS), _field(data, "actor", MAX_ACTORS))
        o.phase = _field(data, "phase", 1 << 32)
        said = (("ctx", F_CTX1), ("nowait", F_NOWAIT), ("thread", F_THREAD))
        o.flags = sum(flag for name, flag in said if data.get(name))
        known = {"op", "phase", "proc", "actor", "accesses", *(name for name, _ in said)}
        for field_ in operation.fields:
            name, words = field_.name, field_.words
            known.add(name)
            value = data.get(name, 0)
            if words is not None and isinstance(value, str):
                matches = [k for k, text in words.items() if text == value]
                if not matches:
                    raise ValueError(f"{name} {value!r} is none of {', '.join(words.values())}")
                value = matches[0]
            setattr(o, field_.at, _number(value, name) & ((1 << 64) - 1))
        unknown = set(data) - known
        if unknown:
            raise ValueError(f"{', '.join(sorted(unknown))}: unknown")
        if o.region >= MAX_REGIONS:
            raise ValueError(f"region {o.region}: there are {MAX_REGIONS}")
        o.acc = [access_from_text(t) for t in data.get("accesses", [])]
    except (TypeError, ValueError) as error:
        raise ValueError(f"{where} ({data['op']}): {error}") from None
    return o


def _field(data: Mapping[str, Any], name: str, limit: int) -> int:
    value = _number(data.get(name, 0), name)
    if not 0 <= value < limit:
        raise ValueError(f"{name} {value} is not below {limit}")
    return value


def access_to_text(a: Access, gpu: bool = True) -> str:
    kind, region, lane, off, value, expect = a
    who = f"L{lane} " if gpu else ""
    if kind == Acc.DELAY:
        return f"{who}delay {value}"
    text = f"{who}{Acc(kind).name.lower()} r{region}+{off:#x}"
    if kind not in (Acc.READ, Acc.READ32):
        text += f" = {value:#x}"
    if kind == Acc.CAS:
        text += f" if {expect:#x}"
    return text


_ACCESS = re.compile(
    r"(?:L(\d+) )?(\w+) (?:r(\d+)\+(\w+))?(?: = (\w+))?(?: if (\w+))?|(?:L(\d+) )?delay (\d+)"
)


def access_from_text(text: Any) -> Access:
    """Raises ValueError."""
    match = _ACCESS.fullmatch(text) if isinstance(text, str) else None
    if match is None:
        raise ValueError(f"access {text!r}: expected e.g. 'L3 write r1+0x1008 = 0x500'")
    lane, kind, region, off, value, expect, lane2, spins = match.groups()
    if spins is not None:
        return (int(Acc.DELAY), 0, int(lane2 or 0), 0, int(spins), 0)
    try:
        number = Acc[kind.upper()]
    except KeyError:
        raise ValueError(f"access {text!r}: there is no {kind!r}") from None
    if region is None or int(region) >= MAX_REGIONS or int(off, 0) >= REGION_SIZE:
        raise ValueError(f"access {text!r}: no such place")
    return (
        int(number), int(region), int(lane or 0), int(off, 0),
        int(value or "0", 0) & ((1 << 64) - 1), int(expect or "0", 0) & ((1 << 64) - 1),
    )  # fmt: skip


