# needs: packages=torch
# tolerance: 1e-3
"""Recurrent networks through cuDNN: LSTM and GRU, bidirectional, packed sequences, forward and backward."""
import torch
from torch import nn

from shared.digest import Digest
from shared.seeding import seed_torch

seed_torch()
digest = Digest()
x = torch.randn(32, 8, 64, device="cuda", requires_grad=True)
for kind in (nn.LSTM, nn.GRU, nn.RNN):
    layer = kind(64, 128, num_layers=2, bidirectional=True).cuda()
    output, _ = layer(x)
    output.square().mean().backward()
    digest.add(f"{kind.__name__} output", output)
    digest.add(f"{kind.__name__} gradients", x.grad, *(parameter.grad for parameter in layer.parameters()))
    x.grad = None
layer = nn.LSTM(64, 64).cuda().half()
packed = nn.utils.rnn.pack_padded_sequence(x.half(), [32, 30, 28, 20, 10, 5, 2, 1])
output, (hidden, cell) = layer(packed)
digest.add("packed, fp16", output.data, hidden, cell)
cell = nn.LSTMCell(64, 64).cuda()
state = (torch.zeros(8, 64, device="cuda"), torch.zeros(8, 64, device="cuda"))
for step in range(16):
    state = cell(x[step], state)
digest.add("cell", *state)
digest.print()
