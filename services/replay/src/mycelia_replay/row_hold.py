"""A hold on a ring's rows: a thread reads them as they were while the ring goes on.

Rows never change once they are stored; they are only overwritten. So nothing is
copied when the hold is taken. The reader takes the rows block by block, and the
ring, before it overwrites a block that has not been read yet, has it put aside.
"""

import threading
from collections.abc import Callable, Mapping

from mycelia_replay.arrays import AnyArray

BLOCK_BYTES = 1024 * 1024
"""About how much is copied under the lock: what either side may wait for the other."""

Columns = Mapping[str, AnyArray]


class RowHold:
    """The rows of keys `[first_key, end_key)`.

    Made and told of overwrites by the ring's owner, read by one other thread.
    """

    def __init__(
        self, read: Callable[[int, int], Columns], first_key: int, end_key: int, row_bytes: int
    ) -> None:
        """Takes hold.

        Args:
          read: copies the rows from one key up to another out of the ring.
          first_key: the oldest row's.
          end_key: the one after the newest row's.
          row_bytes: about how large a row is.
        """
        self.first_key = first_key
        self.end_key = end_key
        self.block_rows = max(1, BLOCK_BYTES // max(1, row_bytes))
        """How many rows are read together at most."""
        self.block_bytes = self.block_rows * row_bytes
        """About how large those are."""
        self.aside_bytes = 0
        """How much had to be put aside so far."""
        self._read = read
        self._lock = threading.Lock()
        self._wanted_key = first_key
        self._overwritten_key = first_key
        self._aside: dict[int, Columns] = {}

    def before_overwrite(self, end_key: int) -> None:
        """Puts aside what is still to be read of the rows up to `end_key`. By the ring's owner."""
        end_key = min(end_key, self.end_key)
        if end_key <= max(self._overwritten_key, self._wanted_key):
            return
        with self._lock:
            key = self._block_start(max(self._overwritten_key, self._wanted_key))
            while key < end_key:
                if key not in self._aside:
                    self._aside[key] = self._copy(key)
                    self.aside_bytes += sum(a.nbytes for a in self._aside[key].values())
                key = self._block_end(key)
            self._overwritten_key = key

    def skip_to(self, key: int) -> None:
        """Says that rows before `key` will not be read. By the reader."""
        with self._lock:
            self._wanted_key = max(self._wanted_key, min(key, self.end_key))
            for start in [start for start in self._aside if self._block_end(start) <= key]:
                del self._aside[start]

    def next_block(self) -> tuple[int, int, Columns]:
        """Reads on: returns first key, row count and columns of the next rows. By the reader.

        A block may begin before what was skipped to; its first rows are not wanted then.

        Raises:
          ValueError: everything has been read.
        """
        with self._lock:
            if self._wanted_key >= self.end_key:
                raise ValueError("everything has been read")
            start = self._block_start(self._wanted_key)
            columns = self._aside.pop(start, None) or self._copy(start)
            end = self._block_end(start)
            self._wanted_key = end
            return start, end - start, columns

    @property
    def is_read(self) -> bool:
        """Whether everything has been read or skipped."""
        return self._wanted_key >= self.end_key

    def _copy(self, start: int) -> Columns:
        return self._read(start, self._block_end(start))

    def _block_start(self, key: int) -> int:
        return max(self.first_key, key - key % self.block_rows)

    def _block_end(self, key: int) -> int:
        return min(self.end_key, key - key % self.block_rows + self.block_rows)
