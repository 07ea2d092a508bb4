# SPDX-License-Identifier: GPL-2.0-or-later
"""The launcher, on hosts that lack things: fake programs stand before the real ones in PATH."""

from __future__ import annotations

import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from hmmbench.base import paths
from hmmbench.suites.doctor import wanted_packages

LAUNCHER = paths.project_root() / "hmmbench"
TOOLS = "sh sed tr grep mktemp rm readlink dirname cat sha256sum printf mkdir tail flock env"


@pytest.fixture
def bin_dir(tmp_path: Path) -> Path:
    """A PATH with the basic tools and nothing else."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for tool in TOOLS.split():
        found = shutil.which(tool)
        if found:
            (folder / tool).symlink_to(found)
    fake(folder, "id", "echo 1000")
    return folder


def fake(folder: Path, name: str, script: str) -> None:
    path = folder / name
    path.unlink(missing_ok=True)
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


def launch(bin_dir: Path, *words: str, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [shutil.which("sh") or "/bin/sh", LAUNCHER, *words],
        env={"PATH": str(bin_dir), "HOME": str(bin_dir.parent), **env},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_not_root_and_packages_missing_names_the_line(bin_dir: Path) -> None:
    fake(bin_dir, "apt-get", "exit 99")
    fake(bin_dir, "dpkg-query", "printf 'ii gcc\\nii make\\nrc flex\\n'")
    done = launch(bin_dir, "run")
    assert done.returncode == 2
    line = next(line for line in done.stderr.splitlines() if "apt-get install" in line)
    words = line.split()
    assert words[:2] == ["sudo", "apt-get"]
    assert "flex" in words, "removed but not purged is not installed"
    assert "gcc" not in words


def test_root_and_apt_fails(bin_dir: Path) -> None:
    fake(bin_dir, "id", "echo 0")
    fake(bin_dir, "apt-get", "echo 'E: Temporary failure resolving'; exit 100")
    fake(bin_dir, "dpkg-query", "true")
    done = launch(bin_dir, "run")
    assert done.returncode == 3
    assert "Temporary failure" in done.stderr
    assert "Mend apt" in done.stderr


def test_two_first_starts_install_once(bin_dir: Path, tmp_path: Path) -> None:
    """As on a bare machine: the second waits for the first, and finds its packages there."""
    packages = " ".join(wanted_packages((LAUNCHER.parent / "ci/packages.txt").read_text()))
    calls, installed = tmp_path / "calls", tmp_path / "installed"
    fake(bin_dir, "id", "echo 0")
    (bin_dir / "sleep").symlink_to(shutil.which("sleep") or "/bin/sleep")
    fake(
        bin_dir,
        "apt-get",
        f"echo $1 >>{calls}; case $1 in install) : >{installed};; *) sleep 0.5;; esac",
    )
    fake(
        bin_dir,
        "dpkg-query",
        f'[ -e {installed} ] && for p in {packages}; do echo "ii $p"; done',
    )
    fake(bin_dir, "python3", "exit 1")
    with ThreadPoolExecutor(2) as pool:
        done = list(pool.map(lambda _: launch(bin_dir, "run", HMMBENCH_PYTHON="python3"), (1, 2)))
    for each in done:
        assert "no usable Python" in each.stderr, "past the packages"
    assert calls.read_text().split() == ["update", "install"]


def test_foreign_host_is_told_its_choices(bin_dir: Path) -> None:
    done = launch(bin_dir, "run")
    assert done.returncode == 2
    assert "ci/Containerfile" in done.stderr
    assert "--kernel-build" in done.stderr


def test_no_good_python(bin_dir: Path) -> None:
    fake(bin_dir, "python3", "exit 1")
    done = launch(bin_dir, "run", HMMBENCH_FOREIGN="1", HMMBENCH_PYTHON="python3")
    assert done.returncode == 2
    assert "3.11" in done.stderr


def test_warm_start_runs_no_pip(bin_dir: Path, tmp_path: Path) -> None:
    """With the stamp there, nothing but the environment's Python is started."""
    packages = " ".join(wanted_packages((LAUNCHER.parent / "ci/packages.txt").read_text()))
    fake(bin_dir, "apt-get", "exit 99")
    fake(bin_dir, "dpkg-query", f'for p in {packages}; do echo "ii $p"; done')
    fake(
        bin_dir,
        "python3",
        # Stands for every step of making the environment: "-m venv" makes a fake one.
        'case "$*" in "-m venv "*) mkdir -p "$3/bin"; '
        'printf \'#!/bin/sh\\necho "$0 $*" >>%s\\n\' "$LOG" >"$3/bin/python"; '
        'chmod +x "$3/bin/python";; esac',
    )
    (bin_dir / "chmod").symlink_to(shutil.which("chmod") or "/bin/chmod")
    log = tmp_path / "calls"
    env = {"LOG": str(log), "HMMBENCH_CACHE": str(tmp_path / "cache")}
    first = launch(bin_dir, "doctor", **env)
    assert first.returncode == 0, first.stderr
    assert "-m pip install" in log.read_text()
    log.write_text("")
    second = launch(bin_dir, "doctor", **env)
    assert second.returncode == 0
    calls = log.read_text().splitlines()
    assert len(calls) == 1
    assert calls[0].endswith("-m hmmbench doctor")


def test_packages_are_words() -> None:
    names = wanted_packages("# a comment\ngcc make # more\n\nflex\n")
    assert names == ["gcc", "make", "flex"]


def test_environment_is_not_kept_when_pip_fails(bin_dir: Path, tmp_path: Path) -> None:
    fake(
        bin_dir,
        "python3",
        'case "$*" in "-m venv "*) mkdir -p "$3/bin"; '
        "printf '#!/bin/sh\\ncase \"$*\" in *pip*) echo no index; exit 1;; esac\\n' "
        '>"$3/bin/python"; chmod +x "$3/bin/python";; esac',
    )
    (bin_dir / "chmod").symlink_to(shutil.which("chmod") or "/bin/chmod")
    env = {"HMMBENCH_FOREIGN": "1", "HMMBENCH_CACHE": str(tmp_path / "cache")}
    done = launch(bin_dir, "doctor", **env)
    assert done.returncode == 3
    assert "no index" in done.stderr
    assert not list((tmp_path / "cache").glob("venv-*/.complete"))
    assert (tmp_path / "cache/logs/venv.log").exists()
