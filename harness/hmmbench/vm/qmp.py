# SPDX-License-Identifier: GPL-2.0-or-later
"""QMP for code that is not asynchronous.

qemu.qmp is an asyncio library. Its loop runs in one thread for the whole process; a call from
elsewhere is handed to it and waited for. Events are given to a callback in that thread, so
that a death or a panic is seen while the main thread waits for the agent.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import logging
import socket
import threading
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, TypeVar

from qemu.qmp import ExecuteError, QMPClient, QMPError

from hmmbench.vm.errors import QmpFailure, VmError

T = TypeVar("T")
Event = dict[str, Any]

# A disconnect is our business, not the terminal's.
logging.getLogger("qemu.qmp").setLevel(logging.CRITICAL)

_loop: asyncio.AbstractEventLoop | None = None
_loop_lock = threading.Lock()


def _event_loop() -> asyncio.AbstractEventLoop:
    """The loop of this process, started when first needed. Its thread ends with the process."""
    global _loop
    with _loop_lock:
        if _loop is None:
            loop = asyncio.new_event_loop()
            threading.Thread(target=loop.run_forever, name="qmp", daemon=True).start()
            _loop = loop
        return _loop


def _wait(work: Coroutine[Any, Any, T], timeout: float) -> T:
    """Run a coroutine in the loop's thread; TimeoutError after `timeout` seconds."""
    future = asyncio.run_coroutine_threadsafe(work, _event_loop())
    try:
        return future.result(timeout)
    except concurrent.futures.TimeoutError:
        future.cancel()
        raise TimeoutError from None
    except BaseException:
        future.cancel()
        raise


class Qmp:
    """One QMP session over a connected socket."""

    def __init__(
        self,
        sock: socket.socket,
        on_event: Callable[[Event], None],
        on_closed: Callable[[], None],
        closed: Callable[[], Exception],
    ) -> None:
        """on_event and on_closed are called in the loop's thread and must not block."""
        self._sock = sock
        self._on_event = on_event
        self._on_closed = on_closed
        self._closed = closed
        self._client = QMPClient("hmmbench")
        self._pump: asyncio.Task[None] | None = None

    def connect(self, timeout: float = 20.0) -> None:
        """Negotiate. Raises what `closed` makes if QEMU is gone, VmError on timeout."""
        try:
            _wait(self._connect(), timeout)
        except TimeoutError:
            raise VmError(f"QEMU did not greet on QMP within {timeout:g} s") from None
        except QMPError as error:
            raise self._closed() from error

    async def _connect(self) -> None:
        await self._client.connect(self._sock)
        self._pump = asyncio.get_running_loop().create_task(self._watch())

    async def _watch(self) -> None:
        # The listener sees nothing when the session ends; the run state does.
        events = asyncio.ensure_future(self._forward_events())
        try:
            while self._client.runstate.name == "RUNNING":
                await self._client.runstate_changed()
        finally:
            events.cancel()
        self._on_closed()

    async def _forward_events(self) -> None:
        async for event in self._client.events:
            self._on_event(dict(event))

    def execute(
        self, command: str, arguments: Mapping[str, object] | None = None, timeout: float = 60.0
    ) -> Any:
        """Run one command.

        Raises QmpFailure (refused), VmError (timeout), or what `closed` makes (QEMU is gone).
        """
        try:
            return _wait(
                self._client.execute(command, dict(arguments) if arguments else None), timeout
            )
        except TimeoutError:
            raise VmError(f"QEMU did not answer {command} within {timeout:g} s") from None
        except ExecuteError as error:
            raise QmpFailure(command, error.error_class, str(error)) from error
        except (QMPError, concurrent.futures.CancelledError) as error:
            raise self._closed() from error

    def close(self) -> None:
        """End the session; never raises, QEMU may be gone."""
        with contextlib.suppress(Exception):
            _wait(self._disconnect(), 5.0)
        self._sock.close()

    async def _disconnect(self) -> None:
        if self._pump is not None:
            self._pump.cancel()
            await asyncio.gather(self._pump, return_exceptions=True)
        with contextlib.suppress(Exception):
            await self._client.disconnect()
