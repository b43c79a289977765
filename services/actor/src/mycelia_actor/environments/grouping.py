"""In how many groups an actor steps its environments."""

from mycelia_actor.environments.cores import core_count
from mycelia_core.config import RunConfig


def count_groups(config: RunConfig) -> int:
    """Returns into how many groups environments of one process are split.

    Two pay where one is stepped outside Python's lock, on a core that would be idle,
    while the network takes about as long over what the other shows.
    """
    if config.actor.groups:
        return config.actor.groups
    steps_elsewhere = config.env.preprocessing == "atari" and config.env.backend in (
        "auto",
        "ale",
        "envpool",
    )
    thinks_here = config.topology == "replay" and config.actor.inference == "local"
    # Every actor's network keeps a core busy, and so does a learner beside them. On two
    # cores the gain with Pong was 0.96 and 1.04, less than what pairs of runs differed by.
    has_idle_core = core_count() > config.actor.count + 1
    return 2 if steps_elsewhere and thinks_here and has_idle_core else 1
