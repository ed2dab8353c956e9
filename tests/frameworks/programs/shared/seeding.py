"""Makes a PyTorch program repeatable: fixed seeds, deterministic algorithms where there are some."""
import random

import numpy
import torch


def seed_torch(seed=1234):
    random.seed(seed)
    numpy.random.seed(seed)
    torch.manual_seed(seed)
    torch.backends.cudnn.benchmark = False
    torch.use_deterministic_algorithms(True, warn_only=True)
