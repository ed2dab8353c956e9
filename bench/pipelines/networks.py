"""The networks that nets.py and trainings.py of bench/pipelines measure: made of narrow layers and what stands between them in practice."""
import argparse
import dataclasses
import functools
import json
import os
import re
import time
import typing


@dataclasses.dataclass(frozen=True)
class Net:
    name: str
    about: str
    chains: int  # that the matcher would take
    make: typing.Callable  # (torch, device, dtype, small) -> (model in evaluation, inputs)


def _mlp(torch, *widths, norm=False):
    layers = []
    for a, b in zip(widths, widths[1:]):
        layers += [torch.nn.Linear(a, b), torch.nn.ReLU()]
    return torch.nn.Sequential(*layers[:-1], *([torch.nn.LayerNorm(widths[-1])] if norm else []))


def _mesh(torch, device, dtype, small, steps=15):
    steps, nodes, edges = (2, 2304, 4608) if small else (steps, 16384, 65536)

    class Mesh(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.encode_nodes, self.encode_edges = _mlp(torch, 16, 128, 128, norm=True), _mlp(torch, 8, 128, 128, norm=True)
            self.edge = torch.nn.ModuleList([_mlp(torch, 384, 128, 128, 128, norm=True) for _ in range(steps)])
            self.node = torch.nn.ModuleList([_mlp(torch, 256, 128, 128, 128, norm=True) for _ in range(steps)])
            self.decode = _mlp(torch, 128, 128, 16)

        def forward(self, nodes, edges, senders, receivers):
            nodes, edges = self.encode_nodes(nodes), self.encode_edges(edges)
            for edge, node in zip(self.edge, self.node):
                new = edge(torch.cat([nodes[senders], nodes[receivers], edges], -1))
                gathered = torch.zeros_like(nodes).index_add(0, receivers, new)
                nodes = nodes + node(torch.cat([nodes, gathered], -1))
                edges = edges + new
            return self.decode(nodes)

    ends = [torch.randint(nodes, (edges,), device=device) for _ in range(2)]
    return (Mesh().to(device, dtype).eval(),
            (torch.randn(nodes, 16, device=device).to(dtype), torch.randn(edges, 8, device=device).to(dtype), *ends))


def _field(torch, device, dtype, small):
    class Field(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.first = _mlp(torch, 64, 256, 256, 256, 256)
            self.second = _mlp(torch, 320, 256, 256, 256, 256)
            self.density, self.feature = torch.nn.Linear(256, 1), torch.nn.Linear(256, 256)
            self.colour = _mlp(torch, 288, 128, 3)

        def forward(self, points, directions):
            hidden = torch.relu(self.first(points))
            hidden = torch.relu(self.second(torch.cat([points, hidden], -1)))
            return torch.cat([self.colour(torch.cat([self.feature(hidden), directions], -1)), self.density(hidden)], -1)

    rows = 4096 if small else 65536
    return Field().to(device, dtype).eval(), tuple(torch.randn(rows, columns, device=device).to(dtype) for columns in (64, 32))


def _recommender(torch, device, dtype, small):
    rows, tables = (4096, 7) if small else (16384, 26)

    class Recommender(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.bottom = _mlp(torch, 16, 256, 256, 128)
            self.tables = torch.nn.ModuleList([torch.nn.Embedding(1000, 128) for _ in range(tables)])
            self.top = _mlp(torch, 128 + (tables + 1) ** 2, 512, 256, 128, 16)

        def forward(self, dense, sparse):
            hidden = torch.relu(self.bottom(dense))
            looked_up = [table(sparse[:, i]).unsqueeze(1) for i, table in enumerate(self.tables)]
            every = torch.cat([hidden.unsqueeze(1)] + looked_up, 1)
            pairs = torch.bmm(every, every.transpose(1, 2)).flatten(1)
            return self.top(torch.cat([hidden, pairs], -1))

    sparse = torch.randint(1000, (rows, tables), device=device)
    return Recommender().to(device, dtype).eval(), (torch.randn(rows, 16, device=device).to(dtype), sparse)


NETS = [
    Net("mesh", "MeshGraphNet-like: 15 steps of edge and node networks of 128", 7, _mesh),
    Net("field", "NeRF-like: eight layers of 256 with a skip, density and colour", 1, _field),
    Net("recommender", "DLRM-like: towers, 26 tables, pairs", 2, _recommender),
]


def _eight(width):
    def make(torch, device, dtype, small):
        rows = 4096 if small else 65536
        return _mlp(torch, *[width] * 9).to(device, dtype), (torch.randn(rows, width, device=device).to(dtype),)

    return make


TRAINED = [
    # Fewer steps: compiled there and back, more take minutes.
    Net("mesh", "MeshGraphNet-like: 5 steps of edge and node networks of 128; 65,536 edges", 7, functools.partial(_mesh, steps=5)),
    Net("eight128", "eight layers of 128; 65,536 rows", 1, _eight(128)),
    Net("eight256", "eight layers of 256; 65,536 rows", 1, _eight(256)),
]


# --- what both benches do alike -----------------------------------------------------------------------------------------


def parse(arguments, doc, ways, default):
    """Options of a bench that measures `ways` besides eager PyTorch; its first line and the rest of its text are `doc`."""
    parser = argparse.ArgumentParser(description=doc.split("\n", maxsplit=1)[0], epilog=doc,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", help="the Markdown file; .json is put beside it")
    parser.add_argument("--smoke", action="store_true", help="only whether it works")
    parser.add_argument("--only", default="", help="regular expression of networks' names")
    parser.add_argument("--dtype", default="bfloat16", choices=("bfloat16", "float16"))
    parser.add_argument("--ways", default=default, help="besides eager PyTorch (default: %(default)s)")
    options = parser.parse_args(arguments)
    unknown = set(options.ways.split(",")) - set(ways)
    if unknown:
        parser.error(f"no way '{unknown.pop()}'; there are {', '.join(ways)}")
    if not options.smoke and not options.output:
        parser.error("--output is missing, or --smoke")
    return options


def named(nets, options):
    return [net for net in nets if re.search(options.only, net.name)]


def distance(got, want):
    return ((got.float() - want).norm() / want.norm()).item()


def save(torch, options, rows, page):
    """page(rows, about), and the rows beside it."""
    now = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime())
    about = f"{torch.cuda.get_device_name(0)}, PyTorch {torch.__version__}, {options.dtype}, {now}"
    with open(options.output, "w", encoding="utf-8") as file:
        file.write(page(rows, about))
    with open(os.path.splitext(options.output)[0] + ".json", "w", encoding="utf-8") as file:
        json.dump({"about": about, "rows": rows}, file, indent=1)
