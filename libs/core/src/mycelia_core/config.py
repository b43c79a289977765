"""The config of a run: one schema for the command line, the registry and every service.

Sections and keys are the dotted names of the command line, for example
`replay.capacity_rows`. Unknown keys are errors.
"""

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator


class Section(BaseModel):
    """A part of the config: immutable, strict about its keys."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)


class AtariConfig(Section):
    """How Atari is preprocessed, with `env.preprocessing = "atari"`. Defaults are DQN's."""

    frame_skip: int = Field(4, ge=1)
    """Frames that an action is repeated for; the last two screens are max-pooled."""

    screen_size: int = Field(84, ge=8)
    """Side of the square, grey observation."""

    noop_max: int = Field(30, ge=0)
    """An episode begins with 1 to so many frames of doing nothing; 0 for none."""

    repeat_action_probability: float = Field(0.0, ge=0, le=1)
    """Sticky actions: how often the emulator repeats the last action; 0.25 is usual."""

    full_action_space: bool = False
    """All 18 actions instead of the game's own."""

    fire_reset: bool = False
    """Whether FIRE is pressed after a reset, in games that wait for it."""

    life_loss: bool = True
    """Whether a lost life ends bootstrapping. The episode goes on in either case."""

    max_episode_frames: int = Field(108_000, ge=1)
    """Frames after which an episode is truncated: half an hour of play."""


class EnvConfig(Section):
    """Which environment is played, and how it is stepped."""

    model_config = ConfigDict(populate_by_name=True)

    id: str
    """A registered Gymnasium id, or `package.module:Class`."""

    kwargs: dict[str, Any] = {}
    """Passed to the environment as they are."""

    import_module: str = Field("", alias="import")
    """A module that is imported first, because it registers the id. Also `env.import`."""

    wrappers: tuple[str, ...] = ()
    """Gymnasium wrappers around it, `package.module:Class` each, the inmost one first."""

    preprocessing: Literal["none", "atari"] = "none"
    """`atari` for small grey screens, frame-skip and so on, as `env.atari` says."""

    atari: AtariConfig = AtariConfig()

    clip_rewards: bool = False
    """Whether only the sign of a reward is learned from. Reported returns stay raw."""

    action_mask: str = ""
    """Where the mask of legal actions is: `info` for info["action_mask"], or the key of a
    Dict observation; empty for none."""

    backend: Literal["auto", "sync", "native", "process", "envpool", "ale"] = "auto"
    """What steps the environments: one by one in the actor, their own vector version, worker
    processes, EnvPool, or ale-py's vector Atari. `auto` takes what is measured to be fastest."""

    processes: int = Field(0, ge=0)
    """Backend `process`: how many worker processes each actor has; 0 for one per core, and with
    backend `auto` one per environment if steps mostly wait."""

    step_timeout_seconds: float = Field(60.0, gt=0)
    """Backend `process`: a worker that takes longer for a step is killed and started again."""

    on_failure: Literal["truncate", "drop"] = "truncate"
    """What becomes of an episode whose environment fails: it ends, truncated, with the last
    good step, or what has not been sent of it yet is dropped."""

    max_restarts: int = Field(10, ge=0)
    """How often in a row an environment may fail before the actor gives up."""

    restart_seconds: float = Field(0.1, gt=0)
    """The wait before the second restart in a row; it doubles with every further one."""


class ActorConfig(Section):
    """How environments are stepped and their rows sent."""

    count: int = Field(2, ge=0)
    """How many actor processes the launcher starts; 0 leaves acting to custom actors."""

    envs_per_actor: int = Field(8, ge=1)
    """How many environments each actor steps together."""

    chunk_rows: int = Field(16, ge=1)
    """Rows of one stream that are sent together."""

    epsilon_base: float = Field(0.4, ge=0, le=1)
    """Ape-X: the exploration of the most exploring environment."""

    epsilon_exponent: float = Field(7.0, ge=0)
    """Ape-X: environment i of N explores with base^(1 + exponent * i / (N - 1))."""

    max_in_flight_requests: int = Field(4, ge=1)
    """Inserts that may wait for their acknowledgement."""

    insert_timeout_seconds: float = Field(60.0, gt=0)
    """How long the oldest of them may wait before it is reported."""

    groups: int = Field(0, ge=0)
    """Groups that an actor's environments are stepped in: with 2, one group is stepped while
    actions are chosen for the other; backend `process` has one per worker process. With 1 all
    are stepped together. 0 takes groups where they were measured to gain."""

    device: Literal["cpu", "auto", "cuda"] = "cpu"
    """Where an actor of topology `replay` evaluates its network: `auto` takes a CUDA GPU where
    torch sees one. Many actors on one GPU are better served by `actor.inference = "central"`."""

    torch_threads: int = Field(1, ge=1)
    """Threads of policies that need torch, such as those that see images."""

    inference: Literal["local", "central"] = "local"
    """Where the policy's network is evaluated: in each actor, or for all of them by an
    inference service. With `central`, actors hold no weights and need no torch."""


class InferenceConfig(Section):
    """The inference service, with `actor.inference = "central"`."""

    max_batch: int = Field(256, ge=1)
    """Observations that are evaluated together at most; a larger request is a batch of its own."""

    deadline_ms: float = Field(2.0, ge=0)
    """How many milliseconds a request waits at most for others to be evaluated with. It waits
    no longer once every actor has asked."""

    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Where the network is evaluated: `auto` takes a CUDA GPU where torch sees one."""

    torch_threads: int = Field(1, ge=1)
    """Threads of torch on a CPU."""

    max_slots: int = Field(4096, ge=1)
    """Environments that the service remembers at most, over all actors."""

    timeout_seconds: float = Field(5.0, gt=0)
    """How long an actor waits for an answer before it looks for the service anew."""


class WindowConfig(Section):
    """Which rows make up an item. Follows from the algorithm, unless set."""

    learn_rows: int = Field(1, ge=1)
    """Rows that are trained on."""

    bootstrap_rows: int = Field(1, ge=0)
    """Rows after them that their targets need; n for n-step returns."""

    period: int = Field(1, ge=1)
    """Rows from the start of one item to the start of the next."""

    burn_in_rows: int = Field(0, ge=0)
    """Rows before the first one trained on, over which a recurrent state warms up."""

    context_rows: int = Field(0, ge=0)
    """Rows before all of these that come with an item; k-1 for stacks of k frames."""

    @property
    def rows(self) -> int:
        """How long a window is from the first row trained on."""
        return self.learn_rows + self.bootstrap_rows

    @property
    def lead_rows(self) -> int:
        """How many rows come before the first one trained on: context and burn-in."""
        return self.context_rows + self.burn_in_rows

    @property
    def overlap_rows(self) -> int:
        """How many rows two items that follow one another both train on; below 0, a gap."""
        return self.learn_rows - self.period


class TableConfig(Section):
    """How one table stores, limits and forgets."""

    name: str = "train"
    """What inserts and samples call the table."""

    capacity_rows: int = Field(100_000, ge=2)
    """Above this the oldest rows are overwritten."""

    sampler: Literal["prioritized", "rank", "uniform", "max_heap", "fifo", "lifo"] = "prioritized"
    """How items are picked."""

    priority_exponent: float = Field(0.6, ge=0)
    """Prioritized: an item is drawn in proportion to priority^exponent; by rank: rank^-exponent."""

    max_times_sampled: int = Field(0, ge=0)
    """After this many draws an item leaves; 0 for never."""

    max_items: int = Field(0, ge=0)
    """The most items the table holds; 0 for as many as its rows make."""

    remover: Literal["fifo", "lowest_priority", "lifo"] = "fifo"
    """Which item leaves when there are more than `max_items`."""

    rate_limiter: Literal["samples_per_insert", "min_size", "queue", "stack"] = "samples_per_insert"
    """Who waits for whom. A queue (sampler `fifo`) or stack (sampler `lifo`) has
    `max_times_sampled` 1, and inserts wait while `max_items` items are unread."""

    samples_per_insert: float = Field(0.0, ge=0)
    """How often each item is drawn on average; 0 for no limit either way."""

    min_items_to_sample: int = Field(1, ge=1)
    """Draws wait until the table holds this many items."""

    error_buffer: float = Field(0.0, ge=0)
    """How many draws either side may be ahead; 0 for twice what is needed at least."""

    window: WindowConfig | None = None
    """Which rows make up an item; None takes the algorithm's."""

    @property
    def inserts_wait_for_room(self) -> bool:
        """Whether inserts wait while there are `max_items`, so that none leaves unread."""
        return self.rate_limiter in ("queue", "stack")

    @property
    def most_items(self) -> int:
        """The most items that the table can hold."""
        return min(self.max_items or self.capacity_rows, self.capacity_rows)

    @model_validator(mode="after")
    def _fits(self) -> "TableConfig":
        if self.min_items_to_sample > self.most_items:
            limit = "max_items" if self.max_items else "capacity_rows"
            raise ValueError(
                f"min_items_to_sample={self.min_items_to_sample} is above "
                f"{limit}={self.most_items}; no sample could ever be drawn"
            )
        window = self.window
        if window and window.lead_rows + window.rows > self.capacity_rows:
            raise ValueError(
                f"a window of {window.lead_rows + window.rows} rows is longer than "
                f"capacity_rows={self.capacity_rows}"
            )
        return self

    @model_validator(mode="after")
    def _limits_possibly(self) -> "TableConfig":
        if self.rate_limiter != "samples_per_insert" and self.samples_per_insert:
            raise ValueError(
                f"samples_per_insert={self.samples_per_insert:g} means nothing with "
                f"rate_limiter={self.rate_limiter}"
            )
        if not self.inserts_wait_for_room:
            return self
        sampler = "fifo" if self.rate_limiter == "queue" else "lifo"
        if self.sampler != sampler or self.max_times_sampled != 1 or not self.max_items:
            raise ValueError(
                f"rate_limiter={self.rate_limiter} needs sampler={sampler}, max_times_sampled=1 "
                f"and max_items of at least 1, got sampler={self.sampler}, "
                f"max_times_sampled={self.max_times_sampled}, max_items={self.max_items}"
            )
        return self


class ReplayConfig(TableConfig):
    """The replay service and its table."""

    tables: tuple[TableConfig, ...] = ()
    """Tables beside it, which are written to and sampled from by name. Their windows are
    its own, unless set."""

    shards: int = Field(1, ge=1)
    """Replay servers that share the table: rows by stream, draws in proportion to priority."""

    checkpoint_period_seconds: float = Field(60.0, ge=0)
    """Seconds between checkpoints of a server with a --checkpoint-dir; 0 for on request only."""

    keep_rows: bool = True
    """Local runs: whether the run folder gets checkpoints of the tables, as large as these are,
    for a run that goes on from it (`resume=`) to begin with."""

    shard_timeout_seconds: float = Field(10.0, gt=0)
    """With several shards: who is silent for so long is left out until it is back."""

    @model_validator(mode="after")
    def _names_differ(self) -> "ReplayConfig":
        names = [self.name, *(table.name for table in self.tables)]
        if len(set(names)) != len(names):
            raise ValueError(f"tables need different names, got {names}")
        return self


class LearnerConfig(Section):
    """How batches are turned into better weights."""

    batch_size: int = Field(128, ge=1)
    """Items per learner step."""

    learning_rate: float = Field(1e-3, gt=0)
    """Adam's step size."""

    adam_epsilon: float = Field(1e-8, gt=0)
    """Adam's epsilon."""

    max_grad_norm: float = Field(10.0, gt=0)
    """Gradients are scaled down to this global norm."""

    publish_period_steps: int = Field(25, ge=1)
    """Learner steps from one publish to the next."""

    prefetch_batches: int = Field(4, ge=1)
    """Batches fetched ahead of their use."""

    checkpoint_period_seconds: float = Field(30.0, gt=0)
    """Seconds from one checkpoint to the next."""

    sample_timeout_seconds: float = Field(600.0, gt=0)
    """How long to wait for a batch before giving up the run."""

    torch_threads: int = Field(1, ge=1)
    """Threads for torch. Two slow small networks down."""

    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Where the learner computes: `auto` takes a CUDA GPU where torch sees one."""


class GradientsConfig(Section):
    """How the parameter server applies the gradients that workers push."""

    optimizer: Literal["rmsprop", "adam", "sgd"] = "rmsprop"
    """Shared RMSProp as A3C has it, Adam, or SGD with momentum."""

    learning_rate: float = Field(7e-4, gt=0)
    """The step size before its schedule."""

    schedule: Literal["constant", "linear", "cosine"] = "constant"
    """How the step size goes from `learning_rate` to `final_fraction` of it."""

    final_fraction: float = Field(0.0, ge=0, le=1)
    """What is left of the step size after `limits.max_updates` updates."""

    warmup_updates: int = Field(0, ge=0)
    """Updates over which the step size rises from 0 first."""

    decay: float = Field(0.99, ge=0, lt=1)
    """RMSProp: the share of the old mean square that stays."""

    momentum: float = Field(0.0, ge=0, lt=1)
    """SGD: the share of the old velocity that stays."""

    epsilon: float = Field(0.01, gt=0)
    """RMSProp: added inside the root; Adam: added to the root."""

    max_grad_norm: float = Field(0.5, ge=0)
    """Each update's gradient is scaled down to this global norm; 0 for never."""

    max_staleness: int = Field(0, ge=0)
    """Asynchronous: versions between a worker's pull and push at most; 0 for any number."""

    stale_gradients: Literal["refuse", "scale"] = "refuse"
    """Asynchronous: beyond `max_staleness`, refuse, or divide the step size by the staleness."""

    workers: int = Field(0, ge=0)
    """Synchronous: W, pushes that make a full round; 0 for `actor.count`."""

    drop_workers: int = Field(0, ge=0)
    """Synchronous: D, a round closes when W - D workers have pushed."""

    round_deadline_seconds: float = Field(30.0, gt=0)
    """Synchronous: a round closes with who has come, this long after its first push."""


class ParamServerConfig(Section):
    """How the parameter server keeps and hands out weights."""

    wire_dtype: Literal["float32", "bfloat16", "float16"] = "float32"
    """What float32 weights and gradients are sent as; the originals stay float32."""

    shards: int = Field(1, ge=1, le=16)
    """Servers that the weights are split over by tensor, balanced by bytes."""


class NetworkConfig(Section):
    """The form of the policy's network."""

    hidden_sizes: tuple[int, ...] = (128, 128)
    """Units of each hidden layer."""

    activation: Literal["relu", "tanh"] = "relu"
    """Actor-critics: what follows each hidden layer."""

    shared_trunk: bool = True
    """Actor-critics: whether policy and value stand on the same hidden layers."""

    convolutions: bool = False
    """Actor-critics: whether four small convolutions on 42 x 42 pixels come first."""

    convolution_dtype: Literal["float32", "bfloat16"] = "float32"
    """Actor-critics: what those compute in, forward and backward; weights stay float32."""

    lstm_units: int = Field(0, ge=0)
    """Actor-critics: size of an LSTM between hidden layers and heads; 0 for none."""


class EvaluationConfig(Section):
    """How a policy is judged: greedy episodes, apart from training."""

    episodes: int = Field(20, ge=1)
    """Episodes in one evaluation."""

    period_seconds: float = Field(2.0, ge=0)
    """Seconds from the start of one evaluation to the next, at least."""

    solved_return: float | None = None
    """The run is solved when an evaluation's mean return reaches this."""


class LimitsConfig(Section):
    """When a run ends at the latest."""

    max_env_steps: int = Field(1_000_000, ge=1)
    """Environment steps over all actors."""

    max_updates: int = Field(0, ge=0)
    """Updates of the weights, whoever makes them; the schedules of `gradients` end here, too.
    0 for no limit."""


class RunConfig(Section):
    """All there is to know about a run."""

    name: str
    """The preset's name; run folders begin with it."""

    description: str = ""
    """One line for people."""

    seed: int = Field(1, ge=0)
    """Every random generator of the run is derived from it."""

    topology: Literal["replay", "async-gradients", "sync-gradients"] = "replay"
    """Who computes gradients from what, and who applies them."""

    env: EnvConfig
    actor: ActorConfig = ActorConfig()
    inference: InferenceConfig = InferenceConfig()
    replay: ReplayConfig = ReplayConfig()
    learner: LearnerConfig = LearnerConfig()
    gradients: GradientsConfig = GradientsConfig()
    param_server: ParamServerConfig = ParamServerConfig()
    algorithm: dict[str, Any]
    """`name`, and the algorithm's own keys; the schema is the algorithm's."""

    network: NetworkConfig = NetworkConfig()
    evaluation: EvaluationConfig = EvaluationConfig()
    limits: LimitsConfig = LimitsConfig()

    @model_validator(mode="after")
    def _infers_possibly(self) -> "RunConfig":
        if self.actor.inference == "central" and self.topology != "replay":
            raise ValueError(
                f"actor.inference=central needs topology=replay, got {self.topology}: workers "
                "that compute gradients hold the network themselves"
            )
        if self.actor.device == "cuda" and self.topology != "replay":
            raise ValueError(
                f"actor.device=cuda needs topology=replay, got {self.topology}: workers compute "
                "gradients on a CPU"
            )
        return self
