# needs: packages=torch,timm
# tolerance: 2e-2
"""CondConv (EfficientNet-CC): a kernel per image, grouped convolutions whose weights are computed; two training steps."""
import timm
import torch

from shared.digest import Digest
from shared.seeding import seed_torch

seed_torch()
digest = Digest()
model = timm.create_model("efficientnet_cc_b0_4e", pretrained=False, num_classes=10).cuda().train()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
image = torch.randn(8, 3, 128, 128, device="cuda")
for step in range(2):
    loss = torch.nn.functional.cross_entropy(model(image), torch.arange(8, device="cuda"))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    digest.add(f"loss {step}", loss)
with torch.no_grad():
    digest.add("logits", model(image))
digest.print()
