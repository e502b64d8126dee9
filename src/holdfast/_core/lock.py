"""A lock that goes with what it guards."""

import threading
from types import TracebackType


class OwnLock:
    """A lock for what is made once and used by several threads; the same thread may take it again.
    A copy of what has one, also in another process, gets a lock of its own."""

    def __init__(self) -> None:
        self._lock = threading.RLock()

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        where: TracebackType | None,
    ) -> None:
        self._lock.release()

    def __reduce__(self) -> tuple[type["OwnLock"], tuple[()]]:
        return OwnLock, ()
