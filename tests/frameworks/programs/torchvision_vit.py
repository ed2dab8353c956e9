# needs: packages=torch,torchvision
# tolerance: 2e-2
"""ViT-B/16: inference in fp32 and bf16, and one training step under autocast."""
import torch
import torchvision

from shared.digest import Digest
from shared.seeding import seed_torch

seed_torch()
digest = Digest()
model = torchvision.models.vit_b_16(weights=None, num_classes=100).cuda()
torch.nn.init.normal_(model.heads.head.weight, std=0.02)  # its own initial weights are zero
image = torch.randn(4, 3, 224, 224, device="cuda")
model.eval()
with torch.inference_mode():
    digest.add("fp32", model(image))
    with torch.autocast("cuda", dtype=torch.bfloat16):
        digest.add("bf16", model(image))
model.train()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)
for step in range(2):
    with torch.autocast("cuda", dtype=torch.bfloat16):
        loss = torch.nn.functional.cross_entropy(model(image), torch.arange(4, device="cuda"))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    digest.add(f"loss {step}", loss)
digest.add("weights", *model.heads.parameters())
digest.print()
