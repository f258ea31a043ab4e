"""How far workers may play ahead of a learner: no further than it needs, since what they play ahead is older."""

from collections import Counter
from collections.abc import Sequence

from cavalcade.vector.fragments import Fragment

_PATIENCE, _LONGEST = 4, 256  # updates without a wait after which the lead shrinks: at least, and at most


class Lead:
    """How many fragments a worker may have finished that are not taken, from 1 to `most`.

    One suffices where the learner is slower than its workers: experience is then one update old. The lead grows when
    the learner waits while a worker is idle, as where fragments take unequal times, and shrinks after some updates
    without a wait: twice as many if it had to grow again soon after it last shrank.
    """

    def __init__(self, most: int):
        self.fragments, self._most = 1, most
        self._calm, self._patience = _PATIENCE, _PATIENCE

    def waits(self, finished: Sequence[Fragment]) -> None:
        """The learner waits for more than these."""
        idle = any(count >= self.fragments for count in Counter(one.worker for one in finished).values())
        if idle and self.fragments < self._most:
            if self.fragments == 1:
                self._patience = _PATIENCE if self._calm >= self._patience else min(2 * self._patience, _LONGEST)
            self.fragments += 1
        self._calm = 0

    def never_waited(self) -> None:
        """All that an update needs was there."""
        self._calm += 1
        if self.fragments > 1 and self._calm >= self._patience:
            self.fragments, self._calm = 1, 0
