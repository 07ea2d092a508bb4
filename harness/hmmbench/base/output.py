# SPDX-License-Identifier: GPL-2.0-or-later
"""Words that nobody reads any more must cost no verdict."""

from __future__ import annotations

import contextlib
import errno
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

#: A pipe without a reader; a terminal that was closed.
READER_GONE = (errno.EPIPE, errno.EIO, errno.ENXIO)


class _Outlasting:
    """A stream whose reader may go away (a pager, a terminal): what is written then is dropped."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        try:
            return int(self._stream.write(text))
        except OSError as error:
            self._gone(error)
            return len(text)

    def flush(self) -> None:
        try:
            self._stream.flush()
        except OSError as error:
            self._gone(error)

    def _gone(self, error: OSError) -> None:
        if error.errno not in READER_GONE:
            raise error
        # What the stream still holds goes there too: Python flushes it once more at its end.
        nowhere = os.open(os.devnull, os.O_WRONLY)
        try:
            os.dup2(nowhere, self._stream.fileno())
        finally:
            os.close(nowhere)
        with contextlib.suppress(OSError):
            self._stream.flush()


@contextmanager
def outlasting() -> Iterator[None]:
    """What is inside goes on to its end, whoever still reads its output."""
    before = sys.stdout, sys.stderr
    # None: it was closed when we were started, and nothing is written to it.
    ours = [None if stream is None else _Outlasting(stream) for stream in before]
    sys.stdout, sys.stderr = ours
    try:
        yield
    finally:
        for stream in ours:
            if stream is not None:
                stream.flush()
        sys.stdout, sys.stderr = before
