"""A resource that its users share equally, in simulated time: the cores of machines, a network, a disk."""

from __future__ import annotations

import heapq
from collections.abc import Callable


class Shared:
    """What several use at once, each getting the same.

    ``rate(n)`` is what ``n`` users get together in a second. Instead of what is left to each, one number is kept, what
    each user would have got since the beginning; a user is done when that reaches the value that was computed when it
    came, so that a change of the others costs nothing (fair queueing's virtual time).
    """

    def __init__(self, rate: Callable[[int], float]) -> None:
        self._rate = rate
        self._now = 0.0
        self._served = 0.0
        self._ends: list[tuple[float, int, int]] = []
        self._users: dict[int, int] = {}
        self._came = 0

    def begin(self, user: int, amount: float, now: float) -> None:
        """Let a user, who is not there yet, want ``amount`` from ``now`` on."""
        self._advance(now)
        self._came += 1
        self._users[user] = self._came
        heapq.heappush(self._ends, (self._served + amount, self._came, user))

    def leave(self, user: int, now: float) -> None:
        """Let a user go away before it is done; nothing where it is not there."""
        self._advance(now)
        self._users.pop(user, None)

    def next(self) -> float:
        """Return when the next user is done if nothing changes, infinity where there is none."""
        self._drop_gone()
        if not self._ends:
            return float("inf")
        left = max(0.0, self._ends[0][0] - self._served)
        return self._now + left / self._each()

    def finish(self) -> tuple[float, int]:
        """Go to that moment, take the user out, and return both."""
        now = self.next()
        self._now, self._served = now, self._ends[0][0]
        user = heapq.heappop(self._ends)[2]
        del self._users[user]
        return now, user

    def _advance(self, now: float) -> None:
        if self._users:
            self._served += (now - self._now) * self._each()
        self._now = now

    def _each(self) -> float:
        return self._rate(len(self._users)) / len(self._users)

    def _drop_gone(self) -> None:
        while self._ends and self._users.get(self._ends[0][2]) != self._ends[0][1]:
            heapq.heappop(self._ends)
