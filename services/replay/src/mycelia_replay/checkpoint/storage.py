"""Where a server keeps its checkpoints, and who it is: that lies with what it holds."""

import fcntl
import uuid
from pathlib import Path
from typing import BinaryIO

IDENTITY = "identity"


class Storage:
    """A folder for checkpoints that one process uses at a time."""

    def __init__(self, folder: Path, restore_from: Path | None = None) -> None:
        """Takes the folder, making it if need be.

        Args:
          folder: where checkpoints go, and are restored from.
          restore_from: another folder to restore from if this one has nothing of the run;
            a checkpoint there may be of any run.

        Raises:
          ValueError: another process uses the folder.
          OSError: it cannot be made or written.
        """
        self.folder = folder
        self.restore_from = restore_from
        folder.mkdir(parents=True, exist_ok=True)
        self._lock: BinaryIO = (folder / IDENTITY).open("a+b")
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            self._lock.close()
            raise ValueError(f"--checkpoint-dir {folder}: another process uses it") from error
        self.instance_id = self._read_identity()
        """The same as long as the folder is there, so that who comes back is known again."""

    def close(self) -> None:
        """Lets go of the folder."""
        self._lock.close()

    def _read_identity(self) -> str:
        self._lock.seek(0)
        known = self._lock.read().decode("ascii", errors="replace").strip()
        if known:
            return known
        instance_id = f"replay-{uuid.uuid4()}"
        self._lock.write(instance_id.encode("ascii"))
        self._lock.flush()
        return instance_id
