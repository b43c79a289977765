"""The inference service over real sockets says what a policy beside the environments would."""

import asyncio
import itertools
import threading
import time
from functools import partial

import grpc
import numpy as np
import pytest
import torch
from gymnasium import spaces

from mycelia.inference.v1 import inference_pb2 as pb
from mycelia.inference.v1 import inference_pb2_grpc
from mycelia_actor.environments.spaces import action_columns, observation_columns, signature_of
from mycelia_actor.inference.service import InferenceServer, make_served
from mycelia_actor.policies.action_values import make_action_values
from mycelia_actor.policies.epsilon_greedy import EpsilonGreedy
from mycelia_actor.policies.remote_values import RemoteValues
from mycelia_actor.policies.vector_values import VectorValues
from mycelia_algorithms.networks.actor_critic import ActorCriticSpec
from mycelia_algorithms.networks.distributions import Categorical
from mycelia_algorithms.networks.factory import build_q_network
from mycelia_algorithms.networks.spec import QNetworkSpec
from mycelia_algorithms.stochastic_policy import StochasticPolicy
from mycelia_core.clients import inference as client_module
from mycelia_core.clients.inference import InferenceStream
from mycelia_core.clients.waiting import StoppedError
from mycelia_core.codec import encode
from mycelia_core.config import EnvConfig, InferenceConfig, NetworkConfig, RunConfig
from mycelia_core.weights import Weights

RUN = "0123456789ab"
SHAPE = (36, 36)
VECTOR = signature_of(
    observation_columns(spaces.Box(-1, 1, (4,), np.float32)), action_columns(spaces.Discrete(3))
)
IMAGE = signature_of(
    observation_columns(spaces.Box(0, 255, SHAPE, np.uint8)), action_columns(spaces.Discrete(3))
)
TOLERANCE = {"rtol": 0, "atol": 1e-6}


def make_config(images=False, topology="replay", network=None, **inference):
    return RunConfig(
        name="test",
        env=EnvConfig(id="test"),
        topology=topology,
        inference=InferenceConfig(**{"max_slots": 16, "device": "cpu"} | inference),
        network=network or NetworkConfig(hidden_sizes=(16,), convolutions=images),
        algorithm={"name": "dqn", "frame_stack": 3, "dueling": True},
    )


def make_weights(images=False, seed=5, version=3):
    spec = QNetworkSpec(
        observation_shape=(3, *SHAPE) if images else (4,),
        action_count=3,
        hidden_sizes=(16,),
        convolutions=images,
    )
    network = build_q_network(spec, seed=seed)
    tensors = {name: tensor.numpy() for name, tensor in network.state_dict().items()}
    for array in tensors.values():
        array.flags.writeable = False
    return Weights(version, 0, tensors)


class Service:
    """An inference server on an event loop in a thread of its own."""

    def __init__(self, config, signature, weights=None):
        self.weights = weights
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self.served = make_served(RUN, config, signature, lambda: self.weights)
        self._server = self._run(self._start())
        self.address = self._server.address
        self._stopped = False

    async def _start(self):
        server = InferenceServer()
        await server.start()
        server.open(self.served)
        return server

    def stop(self):
        if not self._stopped:
            self._stopped = True
            self._run(self._server.stop())
            self.served.batcher.close()
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(5)
            self._loop.close()

    def _run(self, work):
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(10)


@pytest.fixture
def start():
    services = []

    def start_one(config, signature, weights=None):
        services.append(Service(config, signature, weights))
        return services[-1]

    yield start_one
    for service in services:
        service.stop()


@pytest.fixture
def remote():
    made = []

    def make(service, signature=VECTOR, count=4, stop=None, timeout_seconds=10.0):
        made.append(
            RemoteValues(
                signature,
                count,
                run_id=RUN,
                locate=lambda: service.address,
                timeout_seconds=timeout_seconds,
                stop=stop or threading.Event(),
            )
        )
        return made[-1]

    yield make
    for values in made:
        values.close()


def vectors(generator, count=4):
    return generator.uniform(-1, 1, (count, 4)).astype(np.float32)


def frames(generator, count=4):
    return generator.integers(0, 256, (count, *SHAPE), np.uint8)


def shown(observation, first):
    return {"observation": observation, "first": np.asarray(first)}


def test_central_actions_are_those_of_a_policy_beside_the_environments(start, remote):
    service = start(make_config(), VECTOR)
    epsilon = np.array([0.0, 0.1, 0.5, 1.0])
    local = EpsilonGreedy(
        make_action_values(VECTOR, make_config(), 4), epsilon, np.random.default_rng(1)
    )
    central = EpsilonGreedy(remote(service), epsilon, np.random.default_rng(1))
    generator = np.random.default_rng(2)

    for step in range(60):
        if step in (20, 40):
            service.weights = make_weights(seed=step, version=step)
            local.use(service.weights)
        seen = shown(vectors(generator), np.zeros(4, np.bool_))
        mine, theirs = local.act(seen), central.act(seen)

        assert mine.action["action"].tolist() == theirs.action["action"].tolist()
        assert mine.policy_version == theirs.policy_version == step // 20 * 20
        if step < 20:
            assert theirs.q_taken is theirs.q_max is None
            continue
        np.testing.assert_allclose(theirs.q_taken, mine.q_taken, **TOLERANCE)
        np.testing.assert_allclose(theirs.q_max, mine.q_max, **TOLERANCE)
        ahead = {"observation": vectors(generator, 2)}
        np.testing.assert_allclose(
            central.greedy_value(ahead, np.array([3, 1])),
            local.greedy_value(ahead, np.array([3, 1])),
            **TOLERANCE,
        )


def test_stacks_of_frames_are_kept_centrally_for_each_environment_of_each_actor(start, remote):
    service = start(make_config(True, deadline_ms=50.0), IMAGE, make_weights(True))
    central = [remote(service, IMAGE) for _ in range(2)]
    local = [make_action_values(IMAGE, make_config(True), 4) for _ in range(2)]
    for values in local:
        values.use(service.weights)
    generator = np.random.default_rng(2)

    for step in range(12):
        # Groups by turns, as an actor with several sends them.
        slots = np.array([[0, 1, 2, 3], [2, 0]][step % 2])
        seen = [
            shown(frames(generator, len(slots)), (generator.random(len(slots)) < 0.3) | (step == 0))
            for _ in central
        ]
        theirs = together([partial(v.see, s, slots) for v, s in zip(central, seen, strict=True)])
        mine = [v.see(s, slots) for v, s in zip(local, seen, strict=True)]
        np.testing.assert_allclose(np.stack(theirs), np.stack(mine), **TOLERANCE)
        final = {"observation": frames(generator, 1)}
        np.testing.assert_allclose(
            central[0].look_ahead(final, slots[:1]),
            local[0].look_ahead(final, slots[:1]),
            **TOLERANCE,
        )


def test_recurrent_states_are_kept_centrally_and_forgotten_at_first(start):
    network = NetworkConfig(hidden_sizes=(16,), activation="tanh", lstm_units=8)
    service = start(make_config(topology="async-gradients", network=network), VECTOR)
    local = make_lstm_policy()
    service.weights = Weights(1, 0, local.weights())
    state, drawn = local.new_state(4), torch.Generator().manual_seed(7)
    slots, stop = np.arange(4), threading.Event()
    stream = InferenceStream(service.address, RUN, 4, stop)
    generator = np.random.default_rng(2)

    for step in range(30):
        observation = vectors(generator)
        first = np.full(4, step == 0) | (generator.random(4) < 0.2)
        rows = torch.from_numpy(observation)
        with torch.no_grad():
            value = local.judge(
                rows.unsqueeze(0), torch.from_numpy(first).unsqueeze(0), state
            ).value[0]
        action, state = local.act(rows, torch.from_numpy(first), state)
        got = stream.evaluate({"observation": observation}, slots, first, timeout=10)

        logits = torch.from_numpy(got.outputs["logits"].copy())
        assert Categorical(logits).sample(drawn).tolist() == action.tolist()
        np.testing.assert_allclose(got.outputs["value"], value, **TOLERANCE)
        ahead = stream.evaluate({"observation": observation}, slots, None, timeout=10)
        np.testing.assert_allclose(ahead.outputs["value"], local.value(rows, state), **TOLERANCE)
    stream.close()


def make_lstm_policy():
    spec = ActorCriticSpec(
        observation_shape=(4,),
        action_count=3,
        hidden_sizes=(16,),
        shared_trunk=True,
        lstm_units=8,
    )
    policy = StochasticPolicy(
        spec,
        seed=3,
        worker_seed=7,
        gamma=1.0,
        normalise_observation=False,
        normalise_reward=False,
    )
    # Fresh networks hardly tell states apart.
    with torch.no_grad():
        policy.load({name: value * 3 for name, value in policy.weights().items()})
    return policy


def test_torch_says_of_vectors_what_numpy_says():
    numpy_values = make_action_values(VECTOR, make_config(), 4)
    torch_values = VectorValues(VECTOR, make_config(), "cpu")
    seen, slots = shown(vectors(np.random.default_rng(1)), np.zeros(4, np.bool_)), np.arange(4)
    assert torch_values.see(seen, slots) is None

    for values in (numpy_values, torch_values):
        values.use(make_weights())

    np.testing.assert_allclose(
        torch_values.see(seen, slots), numpy_values.see(seen, slots), **TOLERANCE
    )


def test_actors_that_ask_together_are_answered_together(start, remote):
    service = start(make_config(deadline_ms=2000.0), VECTOR, make_weights())
    central = [remote(service) for _ in range(3)]
    seen = shown(vectors(np.random.default_rng(1)), np.ones(4, np.bool_))
    for values in central:
        values.see(seen, np.arange(4))
    before = service.served.batcher.figures.batches

    start_time = time.monotonic()
    together([partial(v.see, seen, np.arange(4)) for v in central])

    assert service.served.batcher.figures.batches == before + 1
    assert time.monotonic() - start_time < 1.9


def test_a_request_of_many_bytes_goes_in_pieces(start, remote, monkeypatch):
    service = start(make_config(True, max_batch=3), IMAGE, make_weights(True))
    local = make_action_values(IMAGE, make_config(True), 8)
    local.use(service.weights)
    monkeypatch.setattr(client_module, "PIECE_BYTES", 3 * SHAPE[0] * SHAPE[1])
    seen = shown(frames(np.random.default_rng(1), 8), np.ones(8, np.bool_))

    theirs = remote(service, IMAGE, 8).see(seen, np.arange(8))

    assert service.served.batcher.figures.requests == 3
    np.testing.assert_allclose(theirs, local.see(seen, np.arange(8)), **TOLERANCE)


def request(**changes):
    fields = {
        "run_id": RUN,
        "slot_count": 2,
        "request_id": 1,
        "slots": [0, 1],
        "observation": {"observation": encode(np.zeros((2, 4), np.float32))},
        "first": encode(np.ones(2, np.bool_)),
    }
    return pb.InferRequest(**{k: v for k, v in (fields | changes).items() if v is not None})


def short_tensor():
    tensor = encode(np.zeros((2, 4), np.float32))
    tensor.data = tensor.data[:-1]
    return tensor


@pytest.mark.parametrize(
    ("changes", "status", "text"),
    [
        ({"run_id": "other"}, "FAILED_PRECONDITION", "run_id: got 'other'"),
        ({"slot_count": None}, "INVALID_ARGUMENT", "slot_count: got 0, expected >= 1"),
        ({"slot_count": 17}, "RESOURCE_EXHAUSTED", "slot_count: got 17"),
        ({"slots": []}, "INVALID_ARGUMENT", "slots: got none"),
        ({"slots": [0, 2]}, "INVALID_ARGUMENT", "slots: got 0 to 2, expected"),
        ({"slots": [-1, 0]}, "INVALID_ARGUMENT", "slots: got -1 to 0"),
        ({"slots": [1, 1]}, "INVALID_ARGUMENT", "slots: got [1, 1], expected different"),
        ({"slots": [1]}, "INVALID_ARGUMENT", "observation['observation']: got float32 [2, 4]"),
        ({"observation": {}}, "INVALID_ARGUMENT", "observation: got columns []"),
        (
            {"observation": {"observation": encode(np.zeros((2, 4), np.float64))}},
            "INVALID_ARGUMENT",
            "observation['observation']: got float64 [2, 4], expected float32 [2, 4]",
        ),
        (
            {"observation": {"observation": short_tensor()}},
            "INVALID_ARGUMENT",
            "observation['observation']: got 31 bytes, expected 32",
        ),
        ({"first": None}, "INVALID_ARGUMENT", "first: dtype 0"),
        ({"first": encode(np.ones(3, np.bool_))}, "INVALID_ARGUMENT", "first: got bool [3]"),
    ],
)
def test_bad_requests_are_refused_by_name_and_free_their_slots(start, changes, status, text):
    service = start(make_config(), VECTOR, make_weights())
    with grpc.insecure_channel(service.address) as channel:
        stub = inference_pb2_grpc.InferenceServiceStub(channel)

        with pytest.raises(grpc.RpcError) as refused:
            list(stub.Infer(iter([request(**changes)]), timeout=10))

        assert refused.value.code().name == status
        assert text in refused.value.details()
        wait_until(lambda: service.served.slots.used_count == 0)
        # And others go on.
        assert len(list(stub.Infer(iter([request()]), timeout=10))) == 1


def test_many_requests_in_flight_are_all_answered(start):
    service = start(make_config(), VECTOR, make_weights())
    with grpc.insecure_channel(service.address) as channel:
        stub = inference_pb2_grpc.InferenceServiceStub(channel)

        requests = [request(request_id=i) for i in range(100)]
        answers = list(stub.Infer(iter(requests), timeout=20))

    assert sorted(answer.request_id for answer in answers) == list(range(100))


def test_an_actor_that_dies_frees_its_slots_and_holds_up_nobody(start, remote):
    service = start(make_config(deadline_ms=100.0), VECTOR, make_weights())
    dying, living = remote(service), remote(service)
    seen = shown(vectors(np.random.default_rng(1)), np.ones(4, np.bool_))
    together([partial(v.see, seen, np.arange(4)) for v in (dying, living)])
    assert service.served.slots.used_count == 8

    dying.close()

    wait_until(lambda: service.served.slots.used_count == 4)
    start_time = time.monotonic()
    for _ in range(20):
        assert living.see(seen, np.arange(4)) is not None
    assert time.monotonic() - start_time < 20 * 0.1


def test_an_actor_waits_for_a_service_that_is_away_and_goes_on_with_the_next(start):
    weights = make_weights()
    old = start(make_config(), VECTOR, weights)
    addresses = itertools.chain([old.address, old.address, None], itertools.repeat(None))
    found = {"next": lambda: next(addresses)}
    values = RemoteValues(
        VECTOR,
        4,
        run_id=RUN,
        locate=lambda: found["next"](),  # noqa: PLW0108 - it changes
        timeout_seconds=5.0,
        stop=threading.Event(),
    )
    seen = shown(vectors(np.random.default_rng(1)), np.ones(4, np.bool_))
    before = values.see(seen, np.arange(4))
    old.stop()
    answers = []
    asking = threading.Thread(target=lambda: answers.append(values.see(seen, np.arange(4))))

    asking.start()
    asking.join(0.5)
    assert asking.is_alive()
    new = start(make_config(), VECTOR, weights)
    found["next"] = lambda: new.address
    asking.join(10)

    np.testing.assert_array_equal(answers[0], before)
    values.close()


def test_a_service_that_does_not_answer_is_given_up_in_time(start, remote):
    service = start(make_config(), VECTOR, make_weights())
    batcher, stop = service.served.batcher, threading.Event()
    values = remote(service, stop=stop, timeout_seconds=0.3)
    seen = shown(vectors(np.random.default_rng(1)), np.ones(4, np.bool_))
    stream = InferenceStream(service.address, RUN, 4, stop)

    # It takes nothing in meanwhile.
    with batcher._changed, pytest.raises(TimeoutError, match="no answer before the deadline"):
        stream.evaluate({"observation": seen["observation"]}, np.arange(4), None, timeout=0.3)
    stream.close()

    assert values.see(seen, np.arange(4)) is not None


def test_a_stop_ends_the_wait_for_a_service_that_never_comes(remote):
    class Nowhere:
        address = None

    stop = threading.Event()
    values = remote(Nowhere, stop=stop)
    threading.Timer(0.2, stop.set).start()
    start_time = time.monotonic()

    with pytest.raises(StoppedError):
        values.see(shown(np.zeros((4, 4), np.float32), np.ones(4, np.bool_)), np.arange(4))

    assert time.monotonic() - start_time < 5


def together(calls):
    """Calls all at the same time and returns what they returned."""
    results = [None] * len(calls)

    def run(index):
        results[index] = calls[index]()

    threads = [threading.Thread(target=run, args=(i,)) for i in range(len(calls))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    return results


def wait_until(condition):
    deadline = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.01)
