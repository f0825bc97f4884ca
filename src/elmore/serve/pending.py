"""How many bytes the responses take that are being computed or sent."""

from __future__ import annotations

import asyncio
from collections import deque

from elmore.base.machine import give_back_memory
from elmore.embedding.vector_files import Record
from elmore.serve.errors import ServiceError
from elmore.serve.settings import Settings

__all__ = ["Pending", "Place"]

# Memory is given back to the system after so many bytes of responses; less is soon used again.
_TRIM_BYTES = 64 << 20
_TRIM_SECONDS = 0.5


class Pending:
    """All responses under way."""

    def __init__(self, settings: Settings) -> None:
        self.limit, self.limit_of_one = settings.pending_bytes, settings.answer_bytes
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


class Place:
    """What one request has reserved, until the last byte of its response is sent."""

    def __init__(self, pending: Pending) -> None:
        self._pending = pending
        self._size = 0
        self._held: deque[Record] = deque()

    def reserve(self, size: int) -> None:
        """Count a response of so many bytes, before it is computed.

        Raises:
            ServiceError: it is too large, or too large beside the others.
        """
        pending = self._pending
        if size > pending.limit_of_one:
            raise ServiceError(
                413,
                f"the response would have about {size} bytes, more than the limit of "
                f"{pending.limit_of_one}; send fewer sentences or pool them",
            )
        # Alone, any response is allowed, or a very large one would never be.
        if pending.bytes and pending.bytes + size > pending.limit:
            raise ServiceError(
                429, "too many bytes of responses are under way; try again later", retry_after=1
            )
        pending.bytes += size
        self._size += size

    def hold(self, records: deque[Record]) -> None:
        """Remember what the response is made from, to forget it in `release`.

        Tasks that were cancelled because the client disconnected are garbage with cycles, which
        Python may collect much later.
        """
        self._held = records

    def release(self) -> None:
        """Give the place back."""
        self._held.clear()
        size, self._size = self._size, 0
        self._pending.release(size)
