# needs: packages=torch
# tolerance: 2e-2
"""A U-Net (transposed convolutions, group norm, skips): training steps under AMP, then inference in channels-last."""
import torch
from torch import nn

from shared.digest import Digest
from shared.seeding import seed_torch


def block(inputs, outputs):
    return nn.Sequential(nn.Conv2d(inputs, outputs, 3, padding=1), nn.GroupNorm(8, outputs), nn.SiLU(),
                         nn.Conv2d(outputs, outputs, 3, padding=1), nn.GroupNorm(8, outputs), nn.SiLU())


class UNet(nn.Module):
    def __init__(self, widths=(32, 64, 128)):
        super().__init__()
        self.down = nn.ModuleList([block(3, widths[0]), block(widths[0], widths[1])])
        self.middle = block(widths[1], widths[2])
        self.grow = nn.ModuleList([nn.ConvTranspose2d(widths[2], widths[1], 2, 2), nn.ConvTranspose2d(widths[1], widths[0], 2, 2)])
        self.up = nn.ModuleList([block(2 * widths[1], widths[1]), block(2 * widths[0], widths[0])])
        self.last = nn.Conv2d(widths[0], 2, 1)

    def forward(self, x):
        skips = []
        for layer in self.down:
            x = layer(x)
            skips.append(x)
            x = nn.functional.max_pool2d(x, 2)
        x = self.middle(x)
        for grow, layer in zip(self.grow, self.up):
            x = layer(torch.cat([grow(x), skips.pop()], dim=1))
        return self.last(x)


seed_torch()
digest = Digest()
model = UNet().cuda()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
scaler = torch.amp.GradScaler("cuda")
image = torch.randn(4, 3, 96, 96, device="cuda")
target = torch.randint(0, 2, (4, 96, 96), device="cuda")
losses = []
for _ in range(6):
    optimizer.zero_grad()
    with torch.autocast("cuda", dtype=torch.float16):
        loss = nn.functional.cross_entropy(model(image), target)
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    losses.append(loss.detach())
digest.add("losses", torch.stack(losses))
model.eval().to(memory_format=torch.channels_last)
with torch.inference_mode():
    output = model(image.to(memory_format=torch.channels_last))
    digest.add("inference", output, nn.functional.interpolate(output, scale_factor=2, mode="bilinear"))
digest.print()
