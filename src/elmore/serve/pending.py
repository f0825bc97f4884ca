"""How many bytes the numbers of responses take that are being computed or sent."""

from __future__ import annotations

import asyncio
from collections import deque

from elmore.base.machine import give_back_memory
from elmore.serve.bodies import Embedded
from elmore.serve.errors import ServiceError
from elmore.serve.settings import Settings

__all__ = ["Pending", "Reservation"]

# Memory is given back to the system after so many bytes of responses; less is soon used again.
_TRIM_BYTES = 64 << 20
_TRIM_SECONDS = 0.5


class Pending:
    """All responses under way."""

    def __init__(self, settings: Settings) -> None:
        self.limit = settings.pending_bytes
        self.bytes = 0
        self._sent = 0

    def release(self, size: int) -> None:
        """Count a response no longer; a large one leaves memory behind that nobody else gets."""
        self.bytes -= size
        self._sent += size
        if self._sent >= _TRIM_BYTES:
            self._sent = 0
            loop = asyncio.get_running_loop()
            # Later, when nothing holds the response any more; it takes some milliseconds.
            loop.call_later(_TRIM_SECONDS, loop.run_in_executor, None, give_back_memory)


class Reservation:
    """What one request has reserved, until the last byte of its response is sent."""

    def __init__(self, pending: Pending) -> None:
        self._pending = pending
        self._size = 0
        self._held: deque[Embedded] = deque()

    def reserve(self, numbers: int) -> None:
        """Count a response of so many float32 numbers, before it is computed.

        Raises:
            ServiceError: there is too much under way already.
        """
        pending, size = self._pending, 4 * numbers
        # Alone, any response is allowed, or a very large one would never be.
        if pending.bytes and pending.bytes + size > pending.limit:
            raise ServiceError(
                429, "too many bytes of responses are under way; try again later", retry_after=1
            )
        pending.bytes += size
        self._size += size

    def hold(self, results: deque[Embedded]) -> None:
        """Remember what the response is made from, to forget it in `release`.

        Tasks that were cancelled because the client disconnected are garbage with cycles, which
        Python may collect much later.
        """
        self._held = results

    def release(self) -> None:
        """Give it back."""
        self._held.clear()
        size, self._size = self._size, 0
        self._pending.release(size)
