"""Networks that no installed package has, by their published structure: not their authors' code, not their weights."""
import torch
from torch import nn
from torch.nn import functional


class Convolution(nn.Sequential):
    def __init__(self, inputs, outputs, size=3, stride=1):
        super().__init__(nn.Conv2d(inputs, outputs, size, stride, size // 2, bias=False), nn.BatchNorm2d(outputs), nn.SiLU())


class CrossStage(nn.Module):
    """One half of the channels through `depth` residual blocks, the other past them."""

    def __init__(self, inputs, outputs, depth):
        super().__init__()
        self.through, self.past = Convolution(inputs, outputs // 2, 1), Convolution(inputs, outputs // 2, 1)
        self.blocks = nn.ModuleList(nn.Sequential(Convolution(outputs // 2, outputs // 2, 1), Convolution(outputs // 2, outputs // 2))
                                    for _ in range(depth))
        self.joined = Convolution(outputs, outputs, 1)

    def forward(self, x):
        through = self.through(x)
        for block in self.blocks:
            through = through + block(through)
        return self.joined(torch.cat([through, self.past(x)], dim=1))


class Detector(nn.Module):
    """YOLO-like: a cross-stage backbone, features of three scales joined from coarse to fine, one head per scale; the 300
    best boxes of 640 x 640 pictures. (No suppression of overlapping boxes: its output would have no fixed size.)"""

    def __init__(self, widths=(48, 96, 192, 384, 768), num_classes=80):
        super().__init__()
        self.stem = Convolution(3, widths[0], stride=2)
        self.stages = nn.ModuleList(nn.Sequential(Convolution(inputs, outputs, stride=2), CrossStage(outputs, outputs, depth))
                                    for inputs, outputs, depth in zip(widths, widths[1:], (2, 4, 4, 2)))
        self.joins = nn.ModuleList([CrossStage(widths[4] + widths[3], widths[3], 2), CrossStage(widths[3] + widths[2], widths[2], 2)])
        self.heads = nn.ModuleList(nn.Sequential(Convolution(width, width), nn.Conv2d(width, 4 + num_classes, 1))
                                   for width in (widths[4], widths[3], widths[2]))

    def forward(self, pictures):
        features = []
        x = self.stem(pictures)
        for stage in self.stages:
            x = stage(x)
            features.append(x)
        scales = [features[-1]]
        for join, finer in zip(self.joins, (features[-2], features[-3])):
            scales.append(join(torch.cat([functional.interpolate(scales[-1], scale_factor=2.0), finer], dim=1)))
        boxes = torch.cat([head(scale).flatten(2) for head, scale in zip(self.heads, scales)], dim=2)
        places, classes = boxes[:, :4], boxes[:, 4:].sigmoid()
        best, index = classes.amax(dim=1).topk(300, dim=1)
        chosen = places.gather(2, index.unsqueeze(1).expand(-1, 4, -1))
        return torch.cat([chosen, best.unsqueeze(1)], dim=1)


class Residual(nn.Module):
    def __init__(self, inputs, outputs, time_width):
        super().__init__()
        self.first = nn.Sequential(nn.GroupNorm(32, inputs), nn.SiLU(), nn.Conv2d(inputs, outputs, 3, padding=1))
        self.time = nn.Sequential(nn.SiLU(), nn.Linear(time_width, outputs))
        self.second = nn.Sequential(nn.GroupNorm(32, outputs), nn.SiLU(), nn.Conv2d(outputs, outputs, 3, padding=1))
        self.past = nn.Conv2d(inputs, outputs, 1) if inputs != outputs else nn.Identity()

    def forward(self, x, time):
        return self.past(x) + self.second(self.first(x) + self.time(time)[:, :, None, None])


class Attention(nn.Module):
    """Over the picture's places, then over the text, then a feed-forward layer."""

    def __init__(self, width, text_width, heads=8):
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(3))
        self.queries = nn.ModuleList(nn.Linear(width, width, bias=False) for _ in range(2))
        self.keys_values = nn.ModuleList(nn.Linear(inputs, 2 * width, bias=False) for inputs in (width, text_width))
        self.outputs = nn.ModuleList(nn.Linear(width, width) for _ in range(2))
        self.feed_forward = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))
        self.heads = heads

    def forward(self, x, text):
        batch, width, height, breadth = x.shape
        x = x.flatten(2).transpose(1, 2)
        for layer in range(2):
            normal = self.norms[layer](x)
            keys, values = self.keys_values[layer](text if layer else normal).chunk(2, dim=-1)
            split = [part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in (self.queries[layer](normal), keys, values)]
            seen = functional.scaled_dot_product_attention(*split)
            x = x + self.outputs[layer](seen.transpose(1, 2).flatten(2))
        x = x + self.feed_forward(self.norms[2](x))
        return x.transpose(1, 2).reshape(batch, width, height, breadth)


class DenoisingUNet(nn.Module):
    """One step of a latent diffusion model of the structure of Stable Diffusion 1: 64 x 64 latents, a text of 77 tokens."""

    def __init__(self, widths=(320, 640, 1280), text_width=768):
        super().__init__()
        time_width = 4 * widths[0]
        self.time = nn.Sequential(nn.Linear(widths[0], time_width), nn.SiLU(), nn.Linear(time_width, time_width))
        self.frequencies = widths[0] // 2
        self.enter = nn.Conv2d(4, widths[0], 3, padding=1)
        self.down, self.up = nn.ModuleList(), nn.ModuleList()
        inputs = widths[0]
        for width in widths:
            self.down.append(nn.ModuleList([Residual(inputs, width, time_width), Attention(width, text_width),
                                            nn.Conv2d(width, width, 3, 2, padding=1)]))
            inputs = width
        self.middle = nn.ModuleList([Residual(inputs, inputs, time_width), Attention(inputs, text_width)])
        for width in reversed(widths):
            self.up.append(nn.ModuleList([Residual(inputs + width, width, time_width), Attention(width, text_width)]))
            inputs = width
        self.leave = nn.Sequential(nn.GroupNorm(32, inputs), nn.SiLU(), nn.Conv2d(inputs, 4, 3, padding=1))

    def forward(self, latents, moment, text):
        scale = torch.exp(torch.arange(self.frequencies, device=latents.device) * (-9.21 / self.frequencies))
        angle = moment.float()[:, None] * scale[None]
        time = self.time(torch.cat([angle.cos(), angle.sin()], dim=1).to(latents.dtype))
        x, skipped = self.enter(latents), []
        for residual, attention, smaller in self.down:
            x = attention(residual(x, time), text)
            skipped.append(x)
            x = smaller(x)
        x = self.middle[1](self.middle[0](x, time), text)
        for residual, attention in self.up:
            x = functional.interpolate(x, scale_factor=2.0)
            x = attention(residual(torch.cat([x, skipped.pop()], dim=1), time), text)
        return self.leave(x)


class PointNet(nn.Module):
    """Points through shared layers, an alignment learned from them, the largest of each feature, a classifier."""

    def __init__(self, num_classes):
        super().__init__()
        self.align_features, self.align = self._shared(3, 64, 128, 1024), self._classifier(1024, 9)
        self.early, self.late = self._shared(3, 64, 64), self._shared(64, 64, 128, 1024)
        self.classifier = self._classifier(1024, num_classes)

    @staticmethod
    def _shared(*widths):
        return nn.Sequential(*(nn.Sequential(nn.Conv1d(inputs, outputs, 1), nn.BatchNorm1d(outputs), nn.ReLU())
                               for inputs, outputs in zip(widths, widths[1:])))

    @staticmethod
    def _classifier(inputs, outputs):
        return nn.Sequential(nn.Linear(inputs, 512), nn.BatchNorm1d(512), nn.ReLU(), nn.Linear(512, 256), nn.BatchNorm1d(256), nn.ReLU(),
                             nn.Dropout(0.3), nn.Linear(256, outputs))

    def forward(self, points):
        turn = self.align(self.align_features(points).amax(dim=2)).view(-1, 3, 3)
        points = torch.bmm(turn.float() + torch.eye(3, device=points.device), points)
        return self.classifier(self.late(self.early(points)).amax(dim=2))


class Recommender(nn.Module):
    """After DLRM: numbers through layers, categories through tables, products of all of them with one another, layers."""

    TABLES, ROWS, WIDTH = 26, 50000, 64

    def __init__(self):
        super().__init__()
        self.tables = nn.Embedding(self.TABLES * self.ROWS, self.WIDTH)
        self.numbers = self._layers(13, 512, 256, self.WIDTH)
        parts = self.TABLES + 1
        self.register_buffer("first", torch.arange(self.TABLES) * self.ROWS)
        self.register_buffer("pairs", torch.tril_indices(parts, parts, -1))
        self.score = nn.Sequential(*self._layers(self.WIDTH + parts * (parts - 1) // 2, 1024, 512, 256), nn.Linear(256, 1))

    @staticmethod
    def _layers(*widths):
        return nn.Sequential(*(layer for pair in zip(widths, widths[1:]) for layer in (nn.Linear(*pair), nn.ReLU())))

    def forward(self, numbers, categories):
        numbers = self.numbers(numbers)
        parts = torch.cat([numbers[:, None], self.tables(categories + self.first)], dim=1)
        products = torch.bmm(parts, parts.transpose(1, 2))[:, self.pairs[0], self.pairs[1]]
        return self.score(torch.cat([numbers, products], dim=1))
