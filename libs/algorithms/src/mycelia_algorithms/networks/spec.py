"""What a network is built from."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class QNetworkSpec:
    """A network of action values: what it sees, what it says, how large it is."""

    observation_shape: tuple[int, ...]
    """The shape of one observation; it is flattened unless there are convolutions."""

    action_count: int
    """How many discrete actions there are."""

    hidden_sizes: tuple[int, ...] = (128, 128)
    """The widths of the layers between."""

    dueling: bool = True
    """Whether value and advantages have heads of their own."""

    convolutions: bool = False
    """Whether the convolutions of DQN come first; observations are then [C, H, W] pixels."""

    def __post_init__(self) -> None:
        """Refuses networks that cannot be built."""
        if self.action_count < 1:
            raise ValueError(f"action_count must be at least 1, got {self.action_count}")
        if self.convolutions and (
            len(self.observation_shape) != 3 or min(self.observation_shape[1:]) < 36
        ):
            raise ValueError(
                f"convolutions need [C, H, W] pixels, 36 x 36 at least, got "
                f"{list(self.observation_shape)}"
            )
        if not self.hidden_sizes or min(self.hidden_sizes) < 1:
            raise ValueError(
                f"hidden_sizes must be positive, at least one, got {self.hidden_sizes}"
            )
