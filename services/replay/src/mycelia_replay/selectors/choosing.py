"""Which selectors a table's settings ask for: one to sample by, one to remove by."""

from mycelia_core.config import TableConfig
from mycelia_replay.selectors.fifo import Fifo
from mycelia_replay.selectors.heap import Heap
from mycelia_replay.selectors.lifo import Lifo
from mycelia_replay.selectors.prioritized import Prioritized
from mycelia_replay.selectors.rank_based import RankBased
from mycelia_replay.selectors.selector import Selector
from mycelia_replay.selectors.uniform import Uniform


def make_sampler(config: TableConfig) -> Selector:
    """Makes what picks the items that are handed out."""
    capacity = config.capacity_rows
    match config.sampler:
        case "prioritized":
            return Prioritized(capacity, config.priority_exponent)
        case "rank":
            return RankBased(capacity, config.priority_exponent)
        case "uniform":
            return Uniform(capacity)
        case "max_heap":
            return Heap(capacity, highest_first=True)
        case "lifo":
            return Lifo(capacity)
        case "fifo":
            return Fifo(capacity)


def make_remover(config: TableConfig) -> Selector | None:
    """Makes what picks the items that leave a table of more than `max_items`; None for no limit."""
    capacity = config.capacity_rows
    if not config.max_items or config.inserts_wait_for_room:
        return None
    match config.remover:
        case "fifo":
            return Fifo(capacity)
        case "lifo":
            return Lifo(capacity)
        case "lowest_priority":
            return Heap(capacity, highest_first=False)
