"""Times a chain on this GPU, as a pipeline and as PyTorch would run it: all in CUDA graphs, on random values."""
import contextlib
import statistics

import torch

from tally.pipelines import operation, plain, spec
from tally.pipelines.library import NoLibrary, PipelineError

_BUFFER_BYTES = 120e6  # of inputs that take turns: more than the L2 cache has
_TYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}
_REPLAYS = 12

_known = {}  # by the chain's string and the device: what was measured


@contextlib.contextmanager
def _apart():
    """Apart from what is being compiled around this."""
    from torch.utils._python_dispatch import _disable_current_modes
    with torch._guards.tracing(None), _disable_current_modes(), torch.no_grad():
        yield


def graph_us(passes):
    """Microseconds of one of these calls, the median over replays of a graph of all of them."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for run in passes[:2] * 2:
            run()
    stream.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        for run in passes:
            run()
    times = []
    for _ in range(_REPLAYS):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        graph.replay()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end) * 1e3 / len(passes))
    return statistics.median(times[2:])


def _random(chain, device):
    dtype = _TYPES[chain.dtype]
    columns, rows = chain.layers[0].columns, chain.rows
    count = max(2, min(16, int(_BUFFER_BYTES / (rows * columns * 2))))
    xs = [torch.randn(rows, columns, device=device, dtype=dtype) for _ in range(count)]
    shapes = {}
    for layer in chain.layers:
        shapes[layer.weights] = (layer.out, layer.columns)
        shapes.update({name: (layer.out,) for name in (layer.bias, layer.scale, layer.shift) if name is not None})
    return xs, [torch.randn(shapes[name], device=device, dtype=dtype) * 0.1 for name in chain.operands()]


def _compiled(chain, x, operands, patches):
    from torch._inductor.compile_fx import compile_fx
    compiled = compile_fx(plain.traced(chain), [x, *operands], config_patches={**patches, "triton.cudagraphs": False})
    return lambda x: compiled(x, *operands)


def measure(chain, device, patches=None):
    """{"plan", "predicted_us", "us": {"tally", "eager", "inductor"}} or {"refused": a sentence}.

    Once for each kind of chain: further ones get what was measured.
    `patches`: inductor's configuration for what it is compared with; None: only with eager.
    """
    text = spec.of(chain)
    key = (text, str(device), repr(sorted((patches or {}).items())))
    if key not in _known:
        with _apart(), torch.cuda.device(device):
            _known[key] = _measure(spec.parse(text), operation.runner(text), device, patches)
    return _known[key]


def _measure(chain, runner, device, patches):
    xs, operands = _random(chain, device)
    try:
        pipeline = runner.pipeline(operands, torch.device(device))
    except (PipelineError, NoLibrary) as error:
        return {"refused": str(error)}
    try:
        plan = pipeline.plan(chain.rows)
        ways = {"tally": lambda x: runner.launch(pipeline, x), "eager": lambda x: runner.plainly(x, operands)}
        if patches is not None:
            ways["inductor"] = _compiled(chain, xs[0], operands, patches)
        us = {name: graph_us([lambda x=x, way=way: way(x) for x in xs]) for name, way in ways.items()}
        return {"plan": str(plan), "predicted_us": plan.predicted_us, "us": us}
    finally:
        torch.cuda.synchronize()
        pipeline.close()
