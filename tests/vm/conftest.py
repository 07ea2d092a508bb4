# SPDX-License-Identifier: GPL-2.0-or-later
"""Virtual machines for tests: built once, booted once, restored for each use.

HMMBENCH_ARTIFACTS names a file written by `hmmbench build --json` to test with those builds.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from hmmbench.build import Artifacts, BuildRequest, ensure
from hmmbench.guest import splat
from hmmbench.vm.machine import Machine
from hmmbench.vm.snapshot import Snapshots
from hmmbench.vm.spec import MachineSpec
from hmmbench.vm.standard import best_spec

HERE = Path(__file__).parent

# Its assertions say what they saw, as a test's do.
pytest.register_assert_rewrite("work")
import work  # noqa: E402


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    ours = [item for item in items if HERE in item.path.parents]
    for item in ours:
        item.add_marker(pytest.mark.vm)
    if not os.environ.get("HMMBENCH_FULL"):
        # CI does not build another kernel.
        full = [item for item in ours if "full_artifacts" in getattr(item, "fixturenames", ())]
        config.hook.pytest_deselected(items=full)
        items[:] = [item for item in items if item not in full]


@pytest.fixture(scope="session")
def artifacts() -> Artifacts:
    given = os.environ.get("HMMBENCH_ARTIFACTS")
    return Artifacts.read(Path(given)) if given else ensure()


@pytest.fixture(scope="session")
def full_artifacts() -> Artifacts:
    """The full configuration (docs/building.md): for tests that `test --full` alone runs."""
    return ensure(BuildRequest(full=True))


@pytest.fixture(scope="session")
def spec(artifacts: Artifacts) -> MachineSpec:
    """The usual machine, driver loaded."""
    return best_spec(artifacts)[0]


@pytest.fixture(scope="session")
def plain_spec(spec: MachineSpec) -> MachineSpec:
    """A machine without GPU: for what the VM layer does by itself."""
    return replace(spec, gpu=None, cmdline=("hmmbench.nodriver",))


@pytest.fixture(scope="session")
def snapshots() -> Snapshots:
    return Snapshots()


@pytest.fixture
def plain(plain_spec: MachineSpec, snapshots: Snapshots) -> Iterator[Machine]:
    """A restored machine without GPU; a splat in it fails the test."""
    with snapshots.open(plain_spec) as machine:
        yield machine
        assert splat.scan(machine.console.text()) == []


@pytest.fixture
def vm(spec: MachineSpec, snapshots: Snapshots) -> Iterator[Machine]:
    """A restored machine with GPU and driver; a splat in it fails the test."""
    with snapshots.open(spec) as machine:
        yield machine
        assert splat.scan(machine.console.text()) == []


@pytest.fixture
def watched(vm: Machine) -> Iterator[Machine]:
    """The machine; a splat or a violation seen by the device fails the test."""
    vm.gpu.set_audit("access")
    yield vm
    vm.check()
    assert splat.scan(vm.console.take()) == []
    work.no_violation(vm)
