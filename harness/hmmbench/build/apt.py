# SPDX-License-Identifier: GPL-2.0-or-later
"""Debian's packages and sources without touching the host's apt.

A private apt state in the cache: the mirror and keyring the host is configured with, and the
suites wanted. It works as an ordinary user. Options go on the command line, because the host's
own apt.conf.d is read after a private APT_CONFIG file and would win over it.
"""

from __future__ import annotations

import functools
import re
import shutil
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from hmmbench.base import paths
from hmmbench.base.errors import Cancelled, EnvironmentFailure
from hmmbench.base.ui import Ui
from hmmbench.build.cache import digest
from hmmbench.build.programs import Programs, guard_disk

#: An index younger than this (seconds) is not fetched again.
FRESH = 24 * 3600

_SUITE = re.compile(
    r"(bookworm|trixie|forky|sid|unstable|testing|stable|oldstable)(-updates|-backports|-security)?"
)
_KEYRINGS = (
    Path("/usr/share/keyrings/debian-archive-keyring.pgp"),
    Path("/usr/share/keyrings/debian-archive-keyring.gpg"),
)


@dataclass(frozen=True)
class Mirror:
    """Where the host gets Debian from."""

    uri: str
    security_uri: str | None
    suite: str
    signed_by: str | None


@dataclass(frozen=True)
class Candidate:
    """A version of a package that an index names; whether it can be had only a download tells."""

    package: str
    version: str
    suite: str

    def __str__(self) -> str:
        return f"{self.package} {self.version} ({self.suite})"


def host_mirror(etc: Path = Path("/etc/apt")) -> Mirror:
    """The Debian mirror of the host's own configuration.

    Its files are read and apt is not asked: apt shows only what `apt-get update` has fetched, and
    container images come without that.
    """
    if shutil.which("apt-get") is None:
        raise EnvironmentFailure(
            "this host has no apt, so Debian's sources cannot be fetched",
            "Pass your own trees (--kernel-build or --kernel-source, and --qemu-source), or use"
            " the container of ci/Containerfile.",
        )
    files = [etc / "sources.list", *sorted((etc / "sources.list.d").glob("*"))]
    entries: list[Entry] = []
    for file in files:
        if file.is_file() and file.suffix in (".list", ".sources"):
            text = file.read_text(errors="replace")
            entries += parse_deb822(text) if file.suffix == ".sources" else parse_list(text)
    return choose_mirror(entries)


@dataclass(frozen=True)
class Entry:
    """One archive and suite of a sources file."""

    uri: str
    suite: str
    components: tuple[str, ...]
    signed_by: str | None = None


def parse_list(text: str) -> list[Entry]:
    """The one-line format: deb [options] uri suite component... (sources.list(5))."""
    found = []
    for line in text.splitlines():
        match = re.match(r"\s*deb\s+(?:\[([^]]*)\]\s+)?(\S+)\s+(\S+)\s*([^#]*)", line)
        if match:
            keyring = re.search(r"signed-by=(/\S+)", match[1] or "")
            components = tuple(match[4].split())
            found.append(Entry(match[2], match[3], components, keyring[1] if keyring else None))
    return found


def parse_deb822(text: str) -> list[Entry]:
    """The stanza format: Types, URIs, Suites, Components, Signed-By."""
    found = []
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    for stanza in re.split(r"\n\s*\n", "\n".join(lines)):
        fields = {
            name.lower(): value.strip()
            for name, value in re.findall(r"(?m)^([\w-]+):((?:.*)(?:\n[ \t]+.*)*)", stanza)
        }
        if "deb" not in fields.get("types", "").split() or fields.get("enabled", "") == "no":
            continue
        keyring = fields.get("signed-by", "")
        components = tuple(fields.get("components", "").split())
        found += [
            Entry(uri, suite, components, keyring if keyring.startswith("/") else None)
            for uri in fields.get("uris", "").split()
            for suite in fields.get("suites", "").split()
        ]
    return found


def choose_mirror(entries: Iterable[Entry]) -> Mirror:
    """Pick Debian's own archive out of what apt is configured with."""
    main = security = None
    for entry in entries:
        if "main" not in entry.components or not _SUITE.fullmatch(entry.suite):
            continue
        if entry.suite.endswith("-security"):
            security = security or entry
        elif main is None:
            main = entry
    if main is None:
        raise EnvironmentFailure(
            "apt on this host is not configured with a Debian mirror",
            "The bench takes the mirror from there. Add one (component main), or use the container"
            " of ci/Containerfile.",
        )
    default = next((str(path) for path in _KEYRINGS if path.is_file()), None)
    return Mirror(
        main.uri, security.uri if security else None, main.suite, main.signed_by or default
    )


def source_lines(mirror: Mirror, suites: Sequence[str], sources: bool) -> list[str]:
    """sources.list lines for these suites; "-security" ones live in their own archive."""
    lines = []
    for suite in suites:
        uri = mirror.security_uri if suite.endswith("-security") else mirror.uri
        if uri is None:
            continue
        option = f"[signed-by={mirror.signed_by}] " if mirror.signed_by else ""
        lines.append(f"deb {option}{uri} {suite} main")
        if sources:
            lines.append(f"deb-src {option}{uri} {suite} main")
    return lines


class Apt:
    """A private apt state for some suites."""

    def __init__(
        self, programs: Programs, ui: Ui, suites: Sequence[str], *, sources: bool, mirror: Mirror
    ) -> None:
        self.programs = programs
        self.ui = ui
        lines = source_lines(mirror, suites, sources)
        self.dir = paths.cache_dir("apt", digest(*lines))
        for name in ("lists/partial", "archives/partial", "preferences.d"):
            (self.dir / name).mkdir(parents=True, exist_ok=True)
        with guard_disk(self.dir):
            (self.dir / "sources.list").write_text("\n".join(lines) + "\n")
            (self.dir / "status").touch()
            (self.dir / "preferences").touch()

    def _options(self) -> list[str]:
        at = self.dir
        settings = {
            "Dir::Etc::sourcelist": at / "sources.list",
            "Dir::Etc::sourceparts": at / "preferences.d",
            "Dir::Etc::preferences": at / "preferences",
            "Dir::Etc::preferencesparts": at / "preferences.d",
            "Dir::State::lists": at / "lists",
            "Dir::State::status": at / "status",
            "Dir::Cache": at,
            "Dir::Cache::archives": "archives",
            "Dir::Cache::pkgcache": "pkgcache.bin",
            "Dir::Cache::srcpkgcache": "srcpkgcache.bin",
            "Acquire::Languages": "none",
            "Acquire::PDiffs": "false",
            "Acquire::Retries": "2",
            "Acquire::http::Timeout": "30",
            # As root apt would change to a user who may not write to root's cache.
            "APT::Sandbox::User": "root",
            "Debug::NoLocking": "true",
        }
        return [word for key, value in settings.items() for word in ("-o", f"{key}={value}")]

    def _command(self, program: str, *words: str) -> list[str]:
        return [program, *self._options(), "-q", *words]

    @property
    def _updated(self) -> Path:
        return self.dir / "updated"

    def update(self, log: Path, force: bool = False) -> None:
        """Fetch the indexes unless they are fresh. A suite the mirror lacks is no error."""
        age = time.time() - self._updated.stat().st_mtime if self._updated.exists() else FRESH
        if not force and age < FRESH:
            return
        try:
            self.programs.run(
                self._command("apt-get", "update"), what="reading the package indexes", log=log
            )
        except Cancelled:
            raise
        except EnvironmentFailure as error:
            if "disk is full" in error.message:
                raise
            self.ui.say(f"note: some package indexes could not be read; going on (log: {log})")
        # Whether apt calls a mirror it cannot reach an error depends on its version.
        if not any((self.dir / "lists").glob("*Packages*")):
            raise EnvironmentFailure(
                "no package indexes could be read",
                f"Is the network there, and the mirror in apt's own sources right? Log: {log}",
            )
        self._updated.touch()

    def packages(self, prefix: str) -> list[str]:
        text = self.programs.output(
            self._command("apt-cache", "pkgnames", prefix), what="apt-cache pkgnames"
        )
        return sorted(text.split())

    def candidates(self, package: str) -> list[Candidate]:
        """Versions the indexes name, newest first."""
        text = self.programs.output(
            self._command("apt-cache", "madison", package), what="apt-cache madison"
        )
        return sort_candidates(parse_madison(text, package, "Packages"))

    def source_candidates(self, package: str) -> list[Candidate]:
        text = self.programs.output(
            self._command("apt-cache", "madison", package), what="apt-cache madison"
        )
        return sort_candidates(parse_madison(text, package, "Sources"))

    def download(self, candidates: Sequence[Candidate], log: Path) -> tuple[Candidate, Path]:
        """The .deb of the first candidate that can be had, and which one it was."""
        return self._first(candidates, log, self._download_one)

    def download_source(self, candidates: Sequence[Candidate], log: Path) -> tuple[Candidate, Path]:
        """The folder with the .dsc and tarballs of the first candidate that can be had."""
        return self._first(candidates, log, self._download_source_one)

    def _first(
        self,
        candidates: Sequence[Candidate],
        log: Path,
        fetch: Callable[[Candidate, Path], Path],
    ) -> tuple[Candidate, Path]:
        last: EnvironmentFailure | None = None
        for candidate in candidates:
            try:
                return candidate, fetch(candidate, log)
            except Cancelled:
                raise
            except EnvironmentFailure as error:
                if "disk is full" in error.message:
                    raise
                last = error
                self.ui.say(f"note: {candidate} is in the index but cannot be had; trying the next")
        if last is None:
            raise EnvironmentFailure("the package indexes name no version of what is needed")
        raise EnvironmentFailure(
            f"no version of {candidates[0].package} could be downloaded: {last.message}",
            f"Is the network there? Tried {len(candidates)}. Log: {log}",
        )

    def _download_one(self, candidate: Candidate, log: Path) -> Path:
        folder = paths.cache_dir("downloads")
        found = _deb(folder, candidate)
        if found is None:
            word = f"{candidate.package}={candidate.version}"
            self.programs.run(
                self._command("apt-get", "download", word),
                what=f"downloading {candidate}",
                log=log,
                cwd=folder,
            )
            found = _deb(folder, candidate)
        if found is None:
            raise EnvironmentFailure(f"apt downloaded {candidate} but no file came")
        return found

    def _download_source_one(self, candidate: Candidate, log: Path) -> Path:
        folder = paths.cache_dir("downloads", f"{candidate.package}-{_plain(candidate.version)}")
        if not (folder / ".complete").exists():
            word = f"{candidate.package}={candidate.version}"
            self.programs.run(
                self._command("apt-get", "source", "--download-only", word),
                what=f"downloading the source {candidate}",
                log=log,
                cwd=folder,
            )
            (folder / ".complete").touch()
        return folder


def _plain(version: str) -> str:
    return version.rpartition(":")[2]


def _deb(folder: Path, candidate: Candidate) -> Path | None:
    """The downloaded file; apt writes the epoch's colon as %3a. Partial files have other names."""
    version = candidate.version.replace(":", "%3a")
    return next(iter(folder.glob(f"{candidate.package}_{version}_*.deb")), None)


def parse_madison(text: str, package: str, kind: str) -> list[Candidate]:
    """Lines of `apt-cache madison`: " name | version | uri suite/component [arch] kind"."""
    found = []
    for line in text.splitlines():
        fields = [field.strip() for field in line.split("|")]
        if len(fields) == 3 and fields[0] == package and fields[2].endswith(kind):
            suite = fields[2].split()[1].partition("/")[0]
            found.append(Candidate(package, fields[1], suite))
    return found


def sort_candidates(found: Iterable[Candidate]) -> list[Candidate]:
    """Newest first by Debian's order, each version once."""
    unique = list({candidate.version: candidate for candidate in found}.values())
    return sorted(
        unique,
        key=lambda candidate: VersionKey(candidate.version),
        reverse=True,
    )


@functools.total_ordering
class VersionKey:
    """A Debian version for sorting."""

    def __init__(self, version: str) -> None:
        self.version = version

    def __eq__(self, other: object) -> bool:
        return isinstance(other, VersionKey) and compare_versions(self.version, other.version) == 0

    def __lt__(self, other: VersionKey) -> bool:
        return compare_versions(self.version, other.version) < 0

    __hash__ = None  # type: ignore[assignment]  # versions that differ may be equal


def compare_versions(a: str, b: str) -> int:
    """Debian's version order: -1, 0 or 1 (deb-version(7))."""

    def split(version: str) -> tuple[int, str, str]:
        epoch, colon, rest = version.partition(":")
        if not colon:
            epoch, rest = "0", version
        upstream, dash, revision = rest.rpartition("-")
        return int(epoch), upstream if dash else rest, revision if dash else ""

    def weight(char: str) -> int:
        if char == "~":
            return -1
        return ord(char) if char.isalpha() else ord(char) + 256

    def part(x: str, y: str) -> int:
        while x or y:
            text_x, text_y = re.match(r"\D*", x), re.match(r"\D*", y)
            assert text_x
            assert text_y
            left = [weight(char) for char in text_x[0]] + [0]
            right = [weight(char) for char in text_y[0]] + [0]
            if left != right:
                return -1 if left < right else 1
            x, y = x[text_x.end() :], y[text_y.end() :]
            digits_x, digits_y = re.match(r"\d*", x), re.match(r"\d*", y)
            assert digits_x
            assert digits_y
            number_x, number_y = int(digits_x[0] or 0), int(digits_y[0] or 0)
            if number_x != number_y:
                return -1 if number_x < number_y else 1
            x, y = x[digits_x.end() :], y[digits_y.end() :]
        return 0

    (epoch_a, upstream_a, revision_a), (epoch_b, upstream_b, revision_b) = split(a), split(b)
    if epoch_a != epoch_b:
        return -1 if epoch_a < epoch_b else 1
    return part(upstream_a, upstream_b) or part(revision_a, revision_b)
