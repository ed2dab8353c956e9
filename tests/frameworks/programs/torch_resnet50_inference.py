# needs: packages=torch,torchvision
"""ResNet-50: fp32, fp16 in channels-last, and as a CUDA graph."""
import torch
import torchvision

from shared.digest import Digest
from shared.seeding import seed_torch

seed_torch()
digest = Digest()
model = torchvision.models.resnet50(weights=None).cuda().eval()
image = torch.randn(4, 3, 224, 224, device="cuda")
with torch.inference_mode():
    digest.add("fp32", model(image))
    model = model.half().to(memory_format=torch.channels_last)
    image = image.half().to(memory_format=torch.channels_last)
    digest.add("fp16", model(image))
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            model(image)
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = model(image)
    for round in range(3):
        image.mul_(0.5)
        graph.replay()
        digest.add(f"graph, replay {round}", captured)
digest.print()
