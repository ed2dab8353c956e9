# needs: packages=torch,torchvision
# tolerance: 2e-2
"""SqueezeNet: inference and training steps in fp32 with RMSprop."""
import torch
import torchvision

from shared.digest import Digest
from shared.seeding import seed_torch

seed_torch()
digest = Digest()
model = torchvision.models.squeezenet1_1(weights=None, num_classes=10).cuda()
optimizer = torch.optim.RMSprop(model.parameters(), lr=1e-5)
image = torch.randn(8, 3, 224, 224, device="cuda")
model.eval()
with torch.inference_mode():
    digest.add("inference", model(image))
model.train()
for step in range(3):
    loss = torch.nn.functional.cross_entropy(model(image), torch.arange(8, device="cuda"))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    digest.add(f"loss {step}", loss)
digest.add("weights", *model.parameters())
digest.print()
