# needs: packages=torch
# tolerance: 1e-3
"""cuDNN: 1-D to 3-D, grouped, dilated, transposed convolutions, pooling, normalisation; forward and backward."""
import torch
from torch import nn

from shared.digest import Digest
from shared.seeding import seed_torch

seed_torch()
digest = Digest()
layers = {
    "1d": (nn.Conv1d(16, 32, 5, padding=2), (8, 16, 256)),
    "2d strided": (nn.Conv2d(16, 32, 3, stride=2), (8, 16, 64, 64)),
    "2d depthwise": (nn.Conv2d(32, 32, 3, groups=32), (8, 32, 64, 64)),
    "2d dilated": (nn.Conv2d(16, 16, 3, dilation=3), (8, 16, 64, 64)),
    "2d transposed": (nn.ConvTranspose2d(16, 8, 4, stride=2), (8, 16, 32, 32)),
    "3d": (nn.Conv3d(4, 8, 3, padding=1), (2, 4, 16, 32, 32)),
    "batch norm": (nn.BatchNorm2d(16), (8, 16, 64, 64)),
    "instance norm": (nn.InstanceNorm2d(16), (8, 16, 64, 64)),
    "layer norm": (nn.LayerNorm(64), (8, 16, 64)),
    "max pool": (nn.MaxPool2d(3, 2), (8, 16, 65, 65)),
    "average pool": (nn.AvgPool2d(3, 2), (8, 16, 65, 65)),
}
for name, (layer, shape) in layers.items():
    layer = layer.cuda()
    for dtype in (torch.float32, torch.float16):
        x = torch.randn(shape, device="cuda", requires_grad=True)
        with torch.autocast("cuda", dtype=torch.float16, enabled=dtype == torch.float16):
            output = layer(x)
        output.float().square().mean().backward()
        digest.add(f"{name} {dtype}", output, x.grad, *(parameter.grad for parameter in layer.parameters()))
        layer.zero_grad()
digest.print()
