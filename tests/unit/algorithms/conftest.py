"""One torch thread for all tests here: two slow small networks down."""

import torch

torch.set_num_threads(1)
