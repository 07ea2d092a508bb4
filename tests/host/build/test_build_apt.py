# SPDX-License-Identifier: GPL-2.0-or-later
"""Choosing versions: the host's mirror, Debian's order, and indexes that promise too much."""

from __future__ import annotations

import io
import shutil
from pathlib import Path

import pytest
from rich.console import Console

from hmmbench.base.errors import EnvironmentFailure
from hmmbench.base.ui import Ui
from hmmbench.build import apt, kernel
from hmmbench.build.apt import Apt, Candidate, Mirror
from hmmbench.build.programs import Programs

MADISON = """\
linux-source-6.12 | 6.12.107-1 | http://mirror.example/debian trixie/main amd64 Packages
linux-source-6.12 | 6.12.117-1~deb12u1 | http://m.example/s bookworm-security/main amd64 Packages
linux-source-6.12 |  6.12.94-1 | http://mirror.example/debian trixie/main amd64 Packages
linux-source-6.12 | 6.12.117-1 | http://mirror.example/s trixie-security/main amd64 Packages
     linux | 6.12.107-1 | http://mirror.example/debian trixie/main Sources
"""


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HMMBENCH_CACHE", str(tmp_path / "cache"))


@pytest.mark.parametrize(
    ("older", "newer"),
    [
        ("6.12.117-1~deb12u1", "6.12.117-1"),
        ("6.12.94-1", "6.12.107-1"),
        ("7.2.12-1~bpo13+1", "7.2.12-1"),
        ("7.2+dfsg-7", "1:7.2+dfsg-7"),
        ("1.0~rc1-1", "1.0-1"),
        ("1.0-1", "1.0-1+b1"),
        ("1.0a", "1.0+"),
    ],
)
def test_debian_order(older: str, newer: str) -> None:
    assert apt.compare_versions(older, newer) == -1
    assert apt.compare_versions(newer, older) == 1
    assert apt.compare_versions(newer, newer) == 0


def test_candidates_newest_first() -> None:
    found = apt.sort_candidates(apt.parse_madison(MADISON, "linux-source-6.12", "Packages"))
    assert [one.version for one in found] == [
        "6.12.117-1",
        "6.12.117-1~deb12u1",
        "6.12.107-1",
        "6.12.94-1",
    ]
    assert found[0].suite == "trixie-security"


def test_newest_branch_first() -> None:
    names = ["linux-source-6.12", "linux-source-7.2", "linux-source-7.10", "linux-source"]
    assert kernel.newest_first([*names, "linux-source-7.3-rt"]) == [
        "linux-source-7.10",
        "linux-source-7.2",
        "linux-source-6.12",
    ]


LIST = """\
# deb http://old.example/debian jessie main
deb https://tools.example/apt bookworm stable
deb [arch=amd64] https://cloud.example/apt cloud-sdk-bookworm main
deb [signed-by=/keys/own.gpg arch=amd64] http://mirror.example/debian/ bookworm main contrib # ours
deb-src http://mirror.example/debian/ bookworm main
deb http://mirror.example/debian-security bookworm-security main
"""

DEB822 = """\
Types: deb
# a comment
URIs: https://repo.example/node
Suites: nodistro
Components: main

Types: deb deb-src
URIs: http://mirror.example/debian/
Suites: trixie trixie-updates
Components: main
Signed-By: /usr/share/keyrings/some.pgp

Types: deb
Enabled: no
URIs: http://off.example/debian
Suites: sid
Components: main

Types: deb
URIs: http://mirror.example/debian-security
Suites: trixie-security
Components: main
Signed-By:
 -----BEGIN PGP PUBLIC KEY BLOCK-----
 .
 -----END PGP PUBLIC KEY BLOCK-----
"""


def test_mirror_is_debians_and_not_a_third_partys() -> None:
    assert apt.choose_mirror(apt.parse_list(LIST)) == Mirror(
        "http://mirror.example/debian/",
        "http://mirror.example/debian-security",
        "bookworm",
        "/keys/own.gpg",
    )
    assert apt.choose_mirror(apt.parse_deb822(DEB822)) == Mirror(
        "http://mirror.example/debian/",
        "http://mirror.example/debian-security",
        "trixie",
        "/usr/share/keyrings/some.pgp",
    )


@pytest.mark.skipif(shutil.which("apt-get") is None, reason="not a Debian host")
def test_mirror_is_found_without_downloaded_indexes(tmp_path: Path) -> None:
    (tmp_path / "sources.list.d").mkdir()
    (tmp_path / "sources.list.d" / "debian.sources").write_text(DEB822)
    (tmp_path / "sources.list.d" / "old.list.save").write_text("deb http://x.example/ sid main")
    assert apt.host_mirror(tmp_path).suite == "trixie"


def test_no_mirror_is_said() -> None:
    with pytest.raises(EnvironmentFailure, match="not configured with a Debian mirror"):
        apt.choose_mirror(apt.parse_list("deb https://archive.example/ubuntu noble main"))


def test_security_suites_only_where_the_host_has_that_archive() -> None:
    mirror = Mirror("http://mirror.example/debian/", None, "bookworm", "/key.gpg")
    lines = apt.source_lines(mirror, ("trixie", "trixie-security"), sources=True)
    assert lines == [
        "deb [signed-by=/key.gpg] http://mirror.example/debian/ trixie main",
        "deb-src [signed-by=/key.gpg] http://mirror.example/debian/ trixie main",
    ]


class FakeIndex(Apt):
    """An index whose newest versions answer 404."""

    def __init__(self, ui: Ui, available: set[str]) -> None:
        mirror = Mirror("http://mirror.example/debian/", None, "bookworm", None)
        super().__init__(Programs(), ui, ("trixie",), sources=False, mirror=mirror)
        self.available = available
        self.asked: list[str] = []

    def _download_one(self, candidate: Candidate, log: Path) -> Path:
        self.asked.append(candidate.version)
        if candidate.version not in self.available:
            raise EnvironmentFailure("404  Not Found")
        return Path(f"/{candidate.version}.deb")


def candidates(*versions: str) -> list[Candidate]:
    return [Candidate("linux-source-7.3", version, "sid") for version in versions]


def test_falls_back_to_the_next_candidate_and_says_so(tmp_path: Path) -> None:
    said = io.StringIO()
    index = FakeIndex(Ui(Console(file=said)), {"7.3.2-1"})
    got, path = index.download(candidates("7.3.4-1", "7.3.3-1", "7.3.2-1"), tmp_path / "log")
    assert got.version == "7.3.2-1"
    assert path == Path("/7.3.2-1.deb")
    assert index.asked == ["7.3.4-1", "7.3.3-1", "7.3.2-1"]
    assert "7.3.4-1" in said.getvalue()
    assert "trying the next" in said.getvalue()


def test_no_candidate_left(tmp_path: Path) -> None:
    index = FakeIndex(Ui(quiet=True), set())
    with pytest.raises(EnvironmentFailure, match="no version of linux-source"):
        index.download(candidates("7.3.4-1", "7.3.3-1"), tmp_path / "log")
    with pytest.raises(EnvironmentFailure, match="name no version"):
        index.download([], tmp_path / "log")


@pytest.mark.skipif(shutil.which("apt-get") is None, reason="not a Debian host")
def test_bad_network_is_a_sentence(tmp_path: Path) -> None:
    # A port nothing listens on: refused at once, and no name is looked up.
    mirror = Mirror("http://127.0.0.1:9/debian/", None, "bookworm", None)
    index = Apt(Programs(), Ui(quiet=True), ("trixie",), sources=False, mirror=mirror)
    with pytest.raises(EnvironmentFailure, match="package indexes") as caught:
        index.update(tmp_path / "log")
    assert "network" in caught.value.hint
