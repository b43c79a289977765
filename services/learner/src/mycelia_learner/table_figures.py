"""The replay table's figures, by glossary name."""

from mycelia_core.clients.sharded_replay import AnyReplayClient
from mycelia_core.rpc.errors import StatusError

CALL_SECONDS = 2.0


class TableFigures:
    """Asks a replay table how it is doing."""

    def __init__(self, client: AnyReplayClient, table: str) -> None:
        """Asks nothing yet."""
        self._client = client
        self._table = table

    def read(self) -> dict[str, float]:
        """Returns fill and counters; nothing if the server does not answer."""
        try:
            (info,) = self._client.info([self._table], timeout=CALL_SECONDS)
        except (StatusError, TimeoutError):
            return {}
        return {
            "replay_items": info.item_count,
            "replay_rows": info.row_count,
            "inserted_items": info.inserted_item_count,
            "sampled_items": info.sampled_item_count,
            "samples_per_insert": info.sampled_item_count / max(1, info.inserted_item_count),
            "stale_priority_updates": info.stale_update_count,
        }
