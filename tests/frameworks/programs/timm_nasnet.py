# needs: packages=torch,timm
"""NASNet-A large: many small kernels, separable convolutions. Batch statistics, because random weights need them."""
import timm
import torch

from shared.digest import Digest
from shared.seeding import seed_torch

seed_torch()
digest = Digest()
model = timm.create_model("nasnetalarge", pretrained=False, num_classes=10, drop_rate=0.0).cuda().train()
image = torch.randn(2, 3, 331, 331, device="cuda")
with torch.no_grad():
    digest.add("fp32", model(image))
    with torch.autocast("cuda", dtype=torch.bfloat16):
        digest.add("bf16", model(image))
digest.print()
