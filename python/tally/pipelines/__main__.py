"""python -m tally.pipelines: see --help."""
import argparse
import json
import os
import sys

from tally.pipelines import explain, graph as graphs

_HELP = """what becomes of each chain of a model's layers: one kernel, or not, and why

    python -m tally.pipelines explain model.py:make
    python -m tally.pipelines explain model.py:make --export model.json    # on a machine with PyTorch
    python -m tally.pipelines explain model.json                           # on any machine

make() returns (model, inputs): a torch.nn.Module, and the tuple that it is called with.

    def make():
        layers = [torch.nn.Linear(128, 128), torch.nn.ReLU(), torch.nn.Linear(128, 64)]
        return torch.nn.Sequential(*layers).cuda().bfloat16(), (torch.randn(65536, 128).cuda().bfloat16(),)

The model is explained for inference. Of each chain: layers, rows, why it ends there, and then

    plan        how the kernel would be run, and the predicted time: asked of libtally-pipelines.so, needs a GPU
    measured    the pipeline beside PyTorch's own operations, in CUDA graphs: needs PyTorch, and the model on a GPU
    refused     why torch.compile(model, backend="tally") leaves it to inductor

The library is found beside this package, or named with TALLY_PIPELINES_LIBRARY. docs/pipelines.md says more."""


def _parse(arguments):
    parser = argparse.ArgumentParser("python -m tally.pipelines", description="Chains of narrow layers as one kernel.")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    command = commands.add_parser("explain", help="what becomes of each chain of a model", description=_HELP,
                                  formatter_class=argparse.RawDescriptionHelpFormatter)
    command.add_argument("target", metavar="FILE.py:FUNCTION | GRAPH.json")
    command.add_argument("--json", action="store_true", help="for programs")
    command.add_argument("--export", metavar="FILE",
                         help="only write the model's graph there; FILE.1.json, ... if it has several")
    return parser.parse_args(arguments)


def _export(found, path):
    base, suffix = os.path.splitext(path)
    for i, graph in enumerate(found):
        name = path if i == 0 else f"{base}.{i}{suffix or '.json'}"
        with open(name, "w", encoding="utf-8") as file:
            file.write(graphs.to_json(graph))
        print(f"{name}: {len(graph.nodes)} operations")


def main(arguments=None):
    options = _parse(arguments)
    try:
        found, device = explain.read(options.target)
        if options.export:
            _export(found, options.export)
            return 0
        rows = [explain.explain(graph, device) for graph in found]
    except (explain.Unexplained, graphs.GraphError, OSError) as error:
        print(f"tally.pipelines: {error}", file=sys.stderr)
        return 1
    if options.json:
        print(json.dumps([{"graph": graph.name, "chains": chains} for graph, chains in zip(found, rows)], indent=1))
    else:
        print("\n\n".join(explain.text(graph, chains) for graph, chains in zip(found, rows)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
