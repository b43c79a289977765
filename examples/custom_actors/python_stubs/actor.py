"""A custom actor on nothing but grpcio and stubs made from protos/: `python actor.py HOST:PORT`."""

import json
import os
import queue
import socket
import sys
import threading
import time
import uuid
from contextlib import suppress
from pathlib import Path

import grpc
import numpy as np

sys.path.insert(0, str(Path(__file__).parent / "generated"))  # made by generate.sh
from policy import choose
from rows import COLUMNS, Slot, insert_request

from mycelia.experience.v1 import signature_pb2
from mycelia.params.v1 import params_pb2, params_pb2_grpc
from mycelia.replay.v1 import replay_pb2_grpc
from mycelia.run.v1 import run_pb2, run_pb2_grpc

ENVIRONMENTS, CHUNK_ROWS, MAX_IN_FLIGHT = 8, 8, 4


class Actor:
    """Takes part in a run until it finishes."""

    def __init__(self, address):
        channel = grpc.insecure_channel(address)
        self.registry = run_pb2_grpc.RunServiceStub(channel)
        self.params = params_pb2_grpc.ParamServiceStub(channel)
        self.name = str(uuid.uuid4())  # new with every start; our streams are named by it, too
        self.version, self.tensors = 0, {}
        self.env_steps, self.episodes = 0, []
        self.finished = threading.Event()

    def join(self):
        signature = signature_pb2.Signature(columns=COLUMNS)
        request = run_pb2.JoinRunRequest(
            instance_id=self.name, role=run_pb2.ROLE_ACTOR, signature=signature,
            host=socket.gethostname(), pid=os.getpid(),
        )  # fmt: skip
        self.run = retried(self.registry.JoinRun, request).run
        self.table = json.loads(self.run.config_json)["replay"]["name"]
        for loop in (self.beat, self.watch_weights):
            threading.Thread(target=loop, daemon=True).start()
        while not self.finished.is_set():
            members = retried(self.registry.GetRun, run_pb2.GetRunRequest()).members
            for member in members:
                if member.role == run_pb2.ROLE_REPLAY and member.alive and member.address:
                    return member.address
            time.sleep(0.2)
        sys.exit("the run finished before it had a replay service")

    def beat(self):
        """Renews the lease and reports, twice a second; learns that the run has finished."""
        request = run_pb2.HeartbeatRequest(run_id=self.run.run_id, instance_id=self.name)
        while not self.finished.wait(0.5):
            request.sequence += 1
            request.counters["env_steps"] = self.env_steps
            request.counters["policy_version"] = self.version
            reported, self.episodes = self.episodes, []
            del request.episodes[:]
            request.episodes.extend(reported)
            if retried(self.registry.Heartbeat, request).phase == run_pb2.PHASE_FINISHED:
                self.finished.set()

    def watch_weights(self):
        """Keeps the newest weights; opens the stream anew when it is lost."""
        while not self.finished.is_set():
            request = params_pb2.WatchWeightsRequest(
                run_id=self.run.run_id, newer_than_version=self.version
            )
            try:
                for response in self.params.WatchWeights(request, timeout=600):
                    if response.HasField("header"):
                        header, buffers = (
                            response.header,
                            [bytearray() for _ in response.header.tensors],
                        )
                    for part in response.parts:
                        buffers[part.tensor_index] += part.data  # parts come in order
                    if response.last:
                        self.tensors = {
                            spec.name: np.frombuffer(data, "<f4").reshape(spec.shape)
                            for spec, data in zip(header.tensors, buffers, strict=True)
                        }
                        self.version = header.version
            except grpc.RpcError:
                self.finished.wait(0.5)

    def act(self):
        """Plays; sends all streams' rows in one request, a few requests ahead of their answers."""
        requests, room = queue.SimpleQueue(), threading.Semaphore(MAX_IN_FLIGHT)
        replay = replay_pb2_grpc.ReplayServiceStub(grpc.insecure_channel(self.join()))
        acknowledgements = replay.Insert(iter(requests.get, None))
        threading.Thread(target=self.free, args=(acknowledgements, room), daemon=True).start()
        slots = [Slot(f"{self.name}/{index}") for index in range(ENVIRONMENTS)]
        rng, sequence = np.random.default_rng(), 0
        while not self.finished.is_set():
            for _ in range(CHUNK_ROWS):
                actions = choose(self.tensors, np.stack([slot.observation for slot in slots]), rng)
                for slot, action in zip(slots, actions, strict=True):
                    slot.step(int(action), self.version, self.episodes)
                self.env_steps += ENVIRONMENTS
            while not room.acquire(timeout=0.5) and not self.finished.is_set():
                pass  # the server acknowledges late while the learner is behind
            sequence += 1
            requests.put(insert_request(self.run.run_id, self.table, sequence, slots))
        requests.put(None)
        leave = run_pb2.LeaveRunRequest(run_id=self.run.run_id, instance_id=self.name)
        with suppress(grpc.RpcError):  # the registry may have gone first
            self.registry.LeaveRun(leave, timeout=5)

    def free(self, acknowledgements, room):
        try:
            for _ in acknowledgements:
                room.release()
        except grpc.RpcError as error:
            if not self.finished.wait(1):
                sys.stderr.write(f"rows were refused: {error.details()}\n")
                os._exit(1)


def retried(method, request, patience=120.0):
    """Calls with a deadline, again and again while the server or the run is not there yet."""
    end = time.monotonic() + patience
    while True:
        try:
            return method(request, timeout=5)
        except grpc.RpcError as error:
            passing = error.code().name in (
                "UNAVAILABLE",
                "DEADLINE_EXCEEDED",
                "FAILED_PRECONDITION",
            )
            if not passing or time.monotonic() > end:
                raise
        time.sleep(0.3)


if __name__ == "__main__":
    Actor(sys.argv[1]).act()
