"""Builds the update that a run's config and signature ask for."""

import torch

from mycelia_algorithms.networks.spec import QNetworkSpec
from mycelia_algorithms.optim.schedules import LearningRate
from mycelia_algorithms.registry import load_update, parse_config
from mycelia_algorithms.update import OptimizerSpec, Update, UpdateState
from mycelia_core.config import RunConfig
from mycelia_core.seeds import seed_int, seed_sequence
from mycelia_core.specs import ACTION, OBSERVATION, Signature
from mycelia_learner.checkpoint import Checkpoint


class UnfitError(ValueError):
    """Config, environment and checkpoint do not go together; the text says which and why."""


def build_update(config: RunConfig, signature: Signature) -> Update:
    """Builds networks and optimizer, with weights drawn from the run's seed.

    Raises:
      UnfitError: if the algorithm cannot learn from such rows or windows.
    """
    algorithm = parse_config(config.algorithm)
    _check_window(config, algorithm.window())
    network = QNetworkSpec(
        observation_shape=(*_stack_shape(config, algorithm), *_observation_shape(signature)),
        action_count=_action_count(signature),
        hidden_sizes=tuple(config.network.hidden_sizes),
        dueling=bool(getattr(algorithm, "dueling", False)),
        convolutions=config.network.convolutions,
    )
    return load_update(algorithm.name)(
        algorithm,
        network=network,
        optimizer=_optimizer_spec(config, algorithm),
        seed=seed_int(seed_sequence(config.seed, "learner")),
        device=choose_device(config.learner.device),
    )


def choose_device(wanted: str) -> str:
    """Returns torch's name of the device to compute on.

    Raises:
      UnfitError: a GPU is asked for and torch sees none.
    """
    has_gpu = torch.cuda.is_available()
    if wanted == "cuda" and not has_gpu:
        raise UnfitError(
            "learner.device is cuda, but torch sees no CUDA device here; "
            "use auto or cpu, or install torch's CUDA build (TORCH=cuda)"
        )
    return "cuda" if has_gpu and wanted != "cpu" else "cpu"


def describe_spaces(signature: Signature) -> dict[str, str]:
    """Names what the network sees and does, for comparison with a later run's."""
    return {
        OBSERVATION: str(_observation_shape(signature)),
        ACTION: f"{_action_count(signature)} actions",
    }


def restore(update: Update, checkpoint: Checkpoint, signature: Signature) -> None:
    """Lets `update` go on from a checkpoint.

    Raises:
      UnfitError: if it was made for other observations, actions or networks.
    """
    saved, wanted = checkpoint.state["spaces"], describe_spaces(signature)
    for name, space in wanted.items():
        if saved.get(name) != space:
            raise UnfitError(
                f"the checkpoint cannot be resumed here: its {name} is {saved.get(name)}, "
                f"this run's is {space}"
            )
    tensors = {name: torch.tensor(array) for name, array in checkpoint.tensors.items()}
    try:
        update.load_state(UpdateState(tensors=tensors, scalars=checkpoint.state["update"]))
    except ValueError as error:
        raise UnfitError(f"the checkpoint cannot be resumed here: {error}") from error


def _observation_shape(signature: Signature) -> tuple[int, ...]:
    columns = signature.starting_with(OBSERVATION)
    if len(columns) != 1 or columns[0].name != OBSERVATION:
        names = [column.name for column in columns]
        raise UnfitError(f"need one column {OBSERVATION!r}, got {names}: no nested spaces yet")
    return columns[0].shape


def _stack_shape(config: RunConfig, algorithm: object) -> tuple[int, ...]:
    depth = int(getattr(algorithm, "frame_stack", 1))
    # A convolution has channels, be it one; an MLP sees a frame alone as it is.
    return (depth,) if depth > 1 or config.network.convolutions else ()


def _action_count(signature: Signature) -> int:
    column = signature.by_name.get(ACTION)
    if column is None or column.shape != () or column.category_count < 1:
        raise UnfitError(f"need a discrete column {ACTION!r}, got {column}")
    return column.category_count


def _check_window(config: RunConfig, wanted: dict[str, int]) -> None:
    window = config.replay.window
    if window is not None and window.model_dump(include=set(wanted)) != wanted:
        raise UnfitError(f"replay.window is {window}, but {config.algorithm} needs {wanted}")


def _optimizer_spec(config: RunConfig, algorithm: object) -> OptimizerSpec:
    learner = config.learner
    rate = LearningRate(
        base=learner.learning_rate,
        warmup_steps=getattr(algorithm, "learning_rate_warmup_steps", 0),
        decay_until_step=getattr(algorithm, "learning_rate_decay_until_step", 0),
    )
    return OptimizerSpec(
        learning_rate=rate,
        adam_epsilon=learner.adam_epsilon,
        max_grad_norm=learner.max_grad_norm,
    )
