# SPDX-License-Identifier: GPL-2.0-or-later
"""Examples that reached something new, kept between runs (`run --corpus DIR`).

A corpus is a folder of files such as

    {"hmmbench": "corpus", "version": 1, "grammar": 4, "steps": "0f1e...", "inputs": [
     {"steps": "...", "around": [1, 17], "when": [1, 17], "chance": 0, "features": "..."}]}

each of them whole by itself: files of several corpora in one folder are all of them merged.  A run
that saves makes one file of all that it finds there, with as few inputs as have every feature.
What an input means hangs on the grammar and on what its steps are: files of another are refused.
What surrounds it is drawn anew from a seed and a number, so it holds for any kernel and driver.
"""

from __future__ import annotations

import base64
import fcntl
import hashlib
import heapq
import json
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from hmmbench.base.errors import UsageError
from hmmbench.campaign.features import BITS, KINDS
from hmmbench.campaign.generate import MAX_STEPS, SEED_BITS, Steps, meaning
from hmmbench.campaign.surroundings import Origin

VERSION = 1

#: Bytes of a step and of a feature in a file.
_STEP, _FEATURE = 1 + SEED_BITS // 8, (BITS + 7) // 8 + 1


@dataclass(frozen=True)
class Input:
    """What an example follows from.

    steps  -- of its program
    around -- from which its surroundings are drawn
    when   -- from which its schedule is drawn, and the use of delay points
    chance -- another seed for what that schedule draws (0: its own)
    """

    steps: Steps
    around: Origin
    when: Origin
    chance: int = 0

    def to_json(self) -> dict[str, Any]:
        packed = b"".join(bytes([kind]) + own.to_bytes(_STEP - 1, "little") for kind, own in
                          self.steps)  # fmt: skip
        return {
            "steps": base64.b64encode(packed).decode(), "around": list(self.around),
            "when": list(self.when), "chance": self.chance,
        }  # fmt: skip

    @property
    def key(self) -> str:
        """The same for the same input."""
        return hashlib.sha256(json.dumps(self.to_json()).encode()).hexdigest()


@dataclass(frozen=True)
class Kept:
    """An input, and all that its latest execution reached."""

    input: Input
    features: frozenset[int]

    def to_json(self) -> dict[str, Any]:
        packed = b"".join(one.to_bytes(_FEATURE, "little") for one in sorted(self.features))
        return {**self.input.to_json(), "features": base64.b64encode(packed).decode()}


def cover(kept: Iterable[Kept]) -> list[Kept]:
    """Few of them that have every feature that any has, those with most of it first.

    The greedy set cover: at most ln(features) times as many as it takes.
    """
    heap = [(-len(one.features), len(one.input.steps), one.input.key, one) for one in kept]
    heap = list({entry[2]: entry for entry in heap}.values())
    heapq.heapify(heap)
    covered: set[int] = set()
    out = []
    while heap:
        stale, steps, key, one = heapq.heappop(heap)
        more = len(one.features - covered)
        if more == -stale and more:
            out.append(one)
            covered |= one.features
        elif more:
            # Others have taken some of it since: it may not be the first any more.
            heapq.heappush(heap, (-more, steps, key, one))
    return out


def load(folder: Path, grammar: int) -> list[Kept]:
    """All of a folder's; none of one that is not there.  Raises UsageError."""
    if not folder.exists():
        return []
    if not folder.is_dir():
        raise UsageError(f"--corpus {folder} is not a folder")
    with _locked(folder, fcntl.LOCK_SH):
        return _all_of(folder, grammar)


def _all_of(folder: Path, grammar: int) -> list[Kept]:
    return [one for path in _files(folder) for one in _read(path, grammar)]


def merged(corpora: Iterable[Sequence[Kept]]) -> list[Kept]:
    """Each input once, in the order given; with what any execution of it reached."""
    found: dict[Input, Kept] = {}
    for corpus in corpora:
        for one in corpus:
            before = found.get(one.input)
            features = one.features | before.features if before else one.features
            found[one.input] = replace(one, features=features)
    return list(found.values())


def save(
    folder: Path, ran: Sequence[Kept], grammar: int, others: Sequence[Kept] = ()
) -> int:
    """Add these to a folder's, in one file that is as small as it gets; how many it has then.

    ran    -- what was executed: that counts, also for what it did not reach
    others -- what was loaded, from wherever, and not executed

    Other runs may save there at the same time: nothing of theirs is lost.  Raises UsageError.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with _locked(folder, fcntl.LOCK_EX):
            files = _files(folder)
            now = {one.input for one in ran}
            before = [one for one in (*others, *_all_of(folder, grammar)) if one.input not in now]
            small = cover(merged([ran, before]))
            if small:
                _write(folder, small, grammar, files)
        return len(small)
    except OSError as error:
        raise UsageError(f"--corpus {folder} cannot be written: {error.strerror}") from error


def _write(folder: Path, small: Sequence[Kept], grammar: int, instead: Sequence[Path]) -> None:
    head = {
        "hmmbench": "corpus", "version": VERSION, "grammar": grammar, "steps": meaning(grammar),
    }  # fmt: skip
    lines = ",\n ".join(json.dumps(one.to_json()) for one in small)
    text = f'{json.dumps(head)[:-1]}, "inputs": [\n {lines}]}}\n'
    path = folder / f"{hashlib.sha256(text.encode()).hexdigest()[:16]}.json"
    part = path.with_suffix(f".{os.getpid()}.part")
    part.write_text(text)
    part.rename(path)
    # Whoever is interrupted here leaves some of it twice, which the next one mends.
    for other in instead:
        if other != path:
            other.unlink(missing_ok=True)


@contextmanager
def _locked(folder: Path, how: int) -> Iterator[None]:
    try:
        held = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    except OSError as error:
        raise UsageError(f"cannot read the corpus {folder}: {error.strerror}") from error
    try:
        # Some file systems (NFS) lock no folder: better a corpus than none.
        with suppress(OSError):
            fcntl.flock(held, how)
        yield
    finally:
        os.close(held)


def _files(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.json")) if folder.is_dir() else []


def _read(path: Path, grammar: int) -> list[Kept]:
    """Raises UsageError for what is no corpus, or one of another meaning."""
    try:
        data = json.loads(path.read_text())
        if not isinstance(data, dict) or data.get("hmmbench") != "corpus":
            raise ValueError('no object with "hmmbench": "corpus"')
        if data["version"] != VERSION:
            raise ValueError(f"version {data['version']}, this bench reads {VERSION}")
        _same_meaning(path, data, grammar)
        return [_kept(one) for one in data["inputs"]]
    except OSError as error:
        raise UsageError(f"cannot read the corpus {path}: {error.strerror}") from error
    except (KeyError, TypeError, ValueError) as error:
        what = f"{error.args[0]} is missing" if isinstance(error, KeyError) else str(error)
        raise UsageError(f"{path} is no corpus: {what}") from error


def _same_meaning(path: Path, data: Any, grammar: int) -> None:
    if data["grammar"] != grammar:
        raise UsageError(
            f"{path} is of grammar {data['grammar']}, this run is of {grammar}",
            f"Give --grammar {data['grammar']}, or another folder.",
        )
    if data["steps"] != meaning(grammar):
        raise UsageError(
            f"{path} is of other operations than this run has",
            "Give the --operations that it was made with, or another folder.",
        )


def _kept(data: Any) -> Kept:
    steps = tuple(
        (packed[0], int.from_bytes(packed[1:], "little"))
        for packed in _pieces(data["steps"], _STEP)
    )
    packed_features = _pieces(data["features"], _FEATURE)
    features = frozenset(int.from_bytes(one, "little") for one in packed_features)
    if not 0 < len(steps) <= MAX_STEPS:
        raise ValueError(f"an input of {len(steps)} steps")
    if any(one >> BITS >= len(KINDS) for one in features):
        raise ValueError("a feature of a kind that there is not")
    chance = data["chance"]
    if not isinstance(chance, int) or chance < 0:
        raise ValueError("chance must be a number")
    return Kept(Input(steps, _origin(data["around"]), _origin(data["when"]), chance), features)


def _origin(data: Any) -> Origin:
    if not isinstance(data, list) or len(data) != 2 or not all(
        isinstance(n, int) and n >= 0 for n in data
    ):  # fmt: skip
        raise ValueError("around and when must be a seed and a number")
    return data[0], data[1]


def _pieces(text: str, size: int) -> list[bytes]:
    packed = base64.b64decode(text, validate=True)
    if len(packed) % size:
        raise ValueError("an input is cut short")
    return [packed[at : at + size] for at in range(0, len(packed), size)]
