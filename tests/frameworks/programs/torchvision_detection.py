# needs: packages=torch,torchvision
"""torchvision's own CUDA operations: NMS, RoI align, deformable convolution, box operations, image transforms."""
import torch
import torchvision
from torchvision.transforms import v2

from shared.digest import Digest
from shared.seeding import seed_torch

seed_torch()
digest = Digest()
corners = torch.rand(500, 2, device="cuda") * 200
boxes = torch.cat([corners, corners + 5 + torch.rand(500, 2, device="cuda") * 60], dim=1)
scores = torch.rand(500, device="cuda")
digest.add("nms", torchvision.ops.nms(boxes, scores, 0.4))
digest.add("iou", torchvision.ops.box_iou(boxes[:50], boxes[50:100]))
features = torch.randn(1, 16, 64, 64, device="cuda")
rois = torch.cat([torch.zeros(500, 1, device="cuda"), boxes], dim=1)[:64]
digest.add("roi align", torchvision.ops.roi_align(features, rois, output_size=7, spatial_scale=0.25, sampling_ratio=2))
offset = torch.randn(1, 18, 64, 64, device="cuda")
digest.add("deformable", torchvision.ops.deform_conv2d(features, offset, torch.randn(8, 16, 3, 3, device="cuda"), padding=1))
image = torch.randint(0, 256, (3, 300, 400), device="cuda", dtype=torch.uint8)
digest.add("transforms", v2.functional.resize(image, [128, 128], antialias=True), v2.functional.gaussian_blur(image, [5, 5]),
           v2.functional.adjust_contrast(image, 1.5), v2.functional.rotate(image, 30.0))
digest.print()
