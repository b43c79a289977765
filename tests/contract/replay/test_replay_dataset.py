"""The torch dataset over a replay table."""

import torch
from torch.utils.data import DataLoader

from mycelia_learner.replay_dataset import ReplayDataset


def test_a_data_loader_yields_the_table_s_batches_as_tensors(
    start_server, make_table, connect, columns_of, signature
):
    server = start_server(make_table(sampler="uniform"))
    columns = columns_of(20)
    with connect(server).writer("train", ["a"], signature) as writer:
        for i in range(20):
            writer.append({name: values[i : i + 1] for name, values in columns.items()})
    dataset = ReplayDataset(server.address, "train", 8, run_id="the-run")
    batches = iter(DataLoader(dataset, batch_size=None))

    batch = next(batches)

    assert batch["observation"].shape == (2, 8, 4)
    assert batch["observation"].dtype == torch.float32
    assert torch.equal(batch["observation"][1], batch["observation"][0] + 1)
    assert torch.allclose(batch["probabilities"], torch.full((8,), 1 / 19, dtype=torch.float64))
    assert batch["item_count"] == 19
    del batches
