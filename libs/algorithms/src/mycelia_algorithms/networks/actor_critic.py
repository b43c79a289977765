"""A policy and a value function: separate or on one trunk, with convolutions or an LSTM before."""

import itertools
import math
from dataclasses import dataclass
from typing import Literal, cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from mycelia_algorithms.networks.distributions import Categorical, DiagonalGaussian, Distribution

State = tuple[Tensor, Tensor]
"""An LSTM's hidden and cell state, [N, H] each."""

_CHANNELS = 32
_POLICY_GAIN = 0.01


@dataclass(frozen=True, kw_only=True, slots=True)
class ActorCriticSpec:
    """An actor-critic network: what it sees, what it does, its form."""

    observation_shape: tuple[int, ...]
    """The shape of one observation; flattened unless there are convolutions."""

    action_count: int = 0
    """How many discrete actions there are; 0 if they are continuous."""

    action_size: int = 0
    """How many numbers a continuous action has; 0 if they are discrete."""

    hidden_sizes: tuple[int, ...] = (64, 64)
    """The widths of the layers of each trunk."""

    activation: Literal["relu", "tanh"] = "tanh"
    """What follows each layer."""

    shared_trunk: bool = False
    """Whether policy and value stand on the same layers."""

    convolutions: bool = False
    """Whether four small convolutions come first; needs a shared trunk and [42, 42] or [C, 42, 42]
    pixels from 0 to 255."""

    convolution_dtype: Literal["float32", "bfloat16"] = "float32"
    """What the convolutions compute in, forward and backward; weights and gradients stay float32.
    On a CPU with bfloat16 instructions, gradients take half the time."""

    lstm_units: int = 0
    """The size of an LSTM between trunk and heads; 0 for none; needs a shared trunk."""

    def __post_init__(self) -> None:
        """Refuses networks that cannot be built."""
        if (self.action_count > 0) == (self.action_size > 0):
            raise ValueError(
                f"need either action_count or action_size, got {self.action_count} and "
                f"{self.action_size}"
            )
        if (self.convolutions or self.lstm_units) and not self.shared_trunk:
            raise ValueError("convolutions and LSTM need shared_trunk")
        if self.convolutions and self.observation_shape[-2:] != (42, 42):
            raise ValueError(f"convolutions need 42 x 42 pixels, got {self.observation_shape}")


@dataclass(frozen=True, slots=True)
class ActorCriticOutput:
    """What the network says of T by N states."""

    policy: Distribution
    """Over actions, batch shape [T, N]."""

    value: Tensor
    """[T, N] V(s)."""

    state: State | None
    """The LSTM's state after the last row; None without one."""


class ActorCritic(nn.Module):
    """A policy and a value function.

    Weights: `policy_trunk.{i}` and `value_trunk.{i}`, or, shared, `trunk.{i}`, each `.weight`
    [out, in] and `.bias` [out]; then `policy.weight` [A, h], `policy.bias` [A], `value.weight`
    [1, h], `value.bias` [1], and `log_std` [D] if actions are continuous. Evaluators without
    torch rely on these names. With convolutions there is `encoder.{i}`, with an LSTM `lstm`.
    """

    def __init__(self, spec: ActorCriticSpec, *, seed: int) -> None:
        """Draws the weights from `seed`: orthogonal, the policy's last layer near 0."""
        super().__init__()
        generator = torch.Generator().manual_seed(seed)
        self._spec = spec
        self._activate = torch.tanh if spec.activation == "tanh" else torch.relu
        size = math.prod(spec.observation_shape)
        if spec.convolutions:
            self.encoder = _encoder(math.prod(spec.observation_shape[:-2]))
            size = _CHANNELS * 3 * 3
        if spec.shared_trunk:
            self.trunk = _trunk(size, spec.hidden_sizes)
        else:
            self.policy_trunk = _trunk(size, spec.hidden_sizes)
            self.value_trunk = _trunk(size, spec.hidden_sizes)
        size = spec.hidden_sizes[-1] if spec.hidden_sizes else size
        if spec.lstm_units:
            self.lstm = nn.LSTM(size, spec.lstm_units)
            size = spec.lstm_units
        self.policy = nn.Linear(size, spec.action_count or spec.action_size)
        self.value = nn.Linear(size, 1)
        if spec.action_size:
            self.log_std = nn.Parameter(torch.zeros(spec.action_size))
        self._initialise(generator)

    def forward(
        self, observation: Tensor, first: Tensor | None = None, state: State | None = None
    ) -> ActorCriticOutput:
        """Judges T by N states.

        Args:
          observation: [T, N, ...], any number dtype.
          first: [T, N] bool, the first rows of episodes: the LSTM forgets before them. Needed
            with an LSTM only.
          state: the LSTM's state before the first row; None for the state of a new episode.
        """
        policy_hidden, value_hidden = self._hidden(observation)
        if self._spec.lstm_units:
            assert first is not None
            policy_hidden, state = self._remember(policy_hidden, first, state)
            value_hidden = policy_hidden
        value = self.value(value_hidden).squeeze(-1)
        return ActorCriticOutput(self._distribution(policy_hidden), value, state)

    def act(
        self, observation: Tensor, first: Tensor, state: State | None
    ) -> tuple[Distribution, State | None]:
        """What to do in N states [N, ...], without their values; `first` [N]."""
        hidden = self._hidden(observation.unsqueeze(0), needs_value=False)[0]
        if self._spec.lstm_units:
            hidden, state = self._remember(hidden, first.unsqueeze(0), state)
        return self._distribution(hidden.squeeze(0)), state

    def _hidden(self, observation: Tensor, *, needs_value: bool = True) -> tuple[Tensor, Tensor]:
        if self._spec.convolutions:
            hidden = self._encode(observation)
        else:
            hidden = observation.flatten(start_dim=2).to(torch.float32)
        if self._spec.shared_trunk:
            shared = self._through(self.trunk, hidden)
            return shared, shared
        policy_hidden = self._through(self.policy_trunk, hidden)
        if not needs_value:
            return policy_hidden, policy_hidden
        return policy_hidden, self._through(self.value_trunk, hidden)

    def _encode(self, pixels: Tensor) -> Tensor:
        rows = pixels.shape[:2]
        dtype = torch.bfloat16 if self._spec.convolution_dtype == "bfloat16" else torch.float32
        hidden = pixels.reshape(rows.numel(), -1, 42, 42).to(dtype) / 255
        for layer in self.encoder:
            weight = layer.get_parameter("weight").to(dtype)
            bias = layer.get_parameter("bias").to(dtype)
            hidden = torch.relu(functional.conv2d(hidden, weight, bias, stride=2, padding=1))
        return hidden.reshape(*rows, -1).to(torch.float32)

    def _through(self, trunk: nn.ModuleList, hidden: Tensor) -> Tensor:
        for layer in trunk:
            hidden = self._activate(layer(hidden))
        return hidden

    def _remember(self, hidden: Tensor, first: Tensor, state: State | None) -> tuple[Tensor, State]:
        # Cut where any episode begins, so that each piece runs through the fused LSTM:
        # three times as fast as a loop of cells over the rows.
        if state is None:
            zeros = hidden.new_zeros(hidden.shape[1], self._spec.lstm_units)
            state = (zeros, zeros)
        if len(first) == 1:
            state = self._remember_one(hidden[0], first[0], state)
            return state[0].unsqueeze(0), state
        starts = [0, *(t for t in range(1, len(first)) if bool(first[t].any()))]
        pieces = []
        for start, end in itertools.pairwise([*starts, len(first)]):
            goes_on = ~first[start].unsqueeze(1)
            inner = ((state[0] * goes_on).unsqueeze(0), (state[1] * goes_on).unsqueeze(0))
            piece, (short, long) = self.lstm(hidden[start:end], inner)
            state = (short.squeeze(0), long.squeeze(0))
            pieces.append(piece)
        return torch.cat(pieces), state

    def _remember_one(self, hidden: Tensor, first: Tensor, state: State) -> State:
        # A cell costs half of what the fused LSTM does for one row.
        goes_on = ~first.unsqueeze(1)
        lstm = self.lstm
        weights = lstm.weight_ih_l0, lstm.weight_hh_l0, lstm.bias_ih_l0, lstm.bias_hh_l0
        inner = (state[0] * goes_on, state[1] * goes_on)
        return torch.lstm_cell(hidden, inner, *cast("tuple[Tensor, ...]", weights))

    def _distribution(self, hidden: Tensor) -> Distribution:
        output: Tensor = self.policy(hidden)
        if self._spec.action_count:
            return Categorical(output)
        return DiagonalGaussian(output, self.log_std)

    @torch.no_grad()
    def _initialise(self, generator: torch.Generator) -> None:
        for module in self.modules():
            if isinstance(module, nn.Linear | nn.Conv2d):
                nn.init.orthogonal_(module.weight, math.sqrt(2), generator=generator)
                assert module.bias is not None
                module.bias.zero_()
            elif isinstance(module, nn.LSTM):
                _initialise_lstm(module, generator)
        nn.init.orthogonal_(self.policy.weight, _POLICY_GAIN, generator=generator)
        nn.init.orthogonal_(self.value.weight, 1.0, generator=generator)


def _trunk(size: int, hidden_sizes: tuple[int, ...]) -> nn.ModuleList:
    return nn.ModuleList(
        nn.Linear(fan_in, fan_out) for fan_in, fan_out in itertools.pairwise((size, *hidden_sizes))
    )


def _encoder(channels: int) -> nn.ModuleList:
    # 42 -> 21 -> 11 -> 6 -> 3 pixels a side, as small A3C networks have it.
    sizes = (channels, *(_CHANNELS,) * 4)
    return nn.ModuleList(
        nn.Conv2d(fan_in, fan_out, 3, stride=2, padding=1)
        for fan_in, fan_out in itertools.pairwise(sizes)
    )


def _initialise_lstm(module: nn.LSTM, generator: torch.Generator) -> None:
    for name, parameter in module.named_parameters():
        if "weight" in name:
            nn.init.orthogonal_(parameter, 1.0, generator=generator)
        else:
            nn.init.zeros_(parameter)
