# needs: packages=torch,torchvision
# tolerance: 2e-2
"""ResNet-50 training: AMP with loss scaling, a pinned DataLoader with worker processes, SGD."""
import torch
import torchvision

from shared.digest import Digest
from shared.seeding import seed_torch


class Images(torch.utils.data.Dataset):
    def __len__(self):
        return 48

    def __getitem__(self, index):
        generator = torch.Generator().manual_seed(index)
        return torch.randn(3, 96, 96, generator=generator), index % 10


def main():
    seed_torch()
    digest = Digest()
    model = torchvision.models.resnet50(weights=None, num_classes=10).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    scaler = torch.amp.GradScaler("cuda")
    loader = torch.utils.data.DataLoader(Images(), batch_size=16, num_workers=2, pin_memory=True, persistent_workers=True)
    for epoch in range(2):
        losses = []
        for images, labels in loader:
            assert images.is_pinned()
            images, labels = images.cuda(non_blocking=True), labels.cuda(non_blocking=True)
            optimizer.zero_grad(set_to_none=True)
            with torch.autocast("cuda", dtype=torch.float16):
                loss = torch.nn.functional.cross_entropy(model(images), labels)
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
            losses.append(loss.detach())
        digest.add(f"losses of epoch {epoch}", torch.stack(losses))
    digest.add("weights", *model.parameters())
    digest.print()


if __name__ == "__main__":
    main()
