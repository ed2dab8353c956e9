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
def _apart(trains):
    """Apart from what is being compiled around this. Gradients come from this thread: it has the compiler's lock."""
    from torch.utils._python_dispatch import _disable_current_modes
    with torch._guards.tracing(None), _disable_current_modes(), torch.set_grad_enabled(trains), \
            torch.autograd.set_multithreading_enabled(False):
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
    """(inputs, operands); of a chain that trains, with gradients wanted as the chain has them."""
    dtype = _TYPES[chain.dtype]
    columns, rows = chain.layers[0].columns, chain.rows
    count = max(2, min(16, int(_BUFFER_BYTES / (rows * columns * 2))))
    xs = [torch.randn(rows, columns, device=device, dtype=dtype) for _ in range(count)]
    shapes = {}
    for layer in chain.layers:
        shapes[layer.weights] = (layer.out, layer.columns)
        shapes.update({name: (layer.out,) for name in (layer.bias, layer.scale, layer.shift) if name is not None})
    operands = [torch.randn(shapes[name], device=device, dtype=dtype) * 0.1 for name in chain.operands()]
    for tensor in (operands if chain.trains else []) + (xs if chain.wants_dx else []):
        tensor.requires_grad_()
    return xs, operands


def _with_backward():
    """Compiles backward passes at once. By its first call one would count as part of what is compiled around this."""
    if not torch.is_grad_enabled():
        return contextlib.nullcontext()
    from torch._functorch import config
    return config.patch(force_non_lazy_backward_lowering=True)


def _compiled(module, x, operands, patches):
    from torch._inductor.compile_fx import compile_fx
    with _with_backward():
        compiled = compile_fx(module, [x, *operands], config_patches={**patches, "triton.cudagraphs": False})
    return lambda x: compiled(x, *operands)


def _ways(chain, text, runner, pipeline, x, operands, patches):
    """Calls with an input. A chain that trains is compiled with what follows from its gradients, as it will be."""
    ways = {"eager": lambda x: runner.plainly(x, operands)}
    if patches is not None:
        ways["inductor"] = _compiled(plain.traced(chain), x, operands, patches)
    if not chain.trains:
        return {"tally": lambda x: runner.launch(pipeline, x), **ways}
    from tally.pipelines import training
    ways["tally"] = lambda x: training.train(x, operands, text)[0]
    if patches is not None:
        replaced = plain.traced(chain, lambda *nodes: training.insert(*nodes, text))
        ways["tally"] = _compiled(replaced, x, operands, patches)
    dy = torch.randn_like(ways["eager"](x))

    def step(way, x):
        y = way(x)
        y = y if isinstance(y, torch.Tensor) else y[0]
        return torch.autograd.grad(y, operands + ([x] if chain.wants_dx else []), dy)

    return {name: lambda x, way=way: step(way, x) for name, way in ways.items()}


def measure(chain, device, patches=None):
    """{"plan", "predicted_us", "us": {"tally", "eager", "inductor"}} or {"refused": a sentence}.

    Once for each kind of chain: further ones get what was measured.
    `patches`: inductor's configuration for what it is compared with; None: only with eager.
    """
    text = spec.of(chain)
    key = (text, str(device), repr(sorted((patches or {}).items())))
    if key not in _known:
        with _apart(chain.trains), torch.cuda.device(device):
            _known[key] = _measure(spec.parse(text), text, operation.runner(text), device, patches)
    return _known[key]


def _measure(chain, text, runner, device, patches):
    xs, operands = _random(chain, device)
    try:
        pipeline = runner.pipeline(operands, torch.device(device))
    except (PipelineError, NoLibrary) as error:
        return {"refused": str(error)}
    try:
        plan = pipeline.plan(chain.rows)
        ways = _ways(chain, text, runner, pipeline, xs[0], operands, patches)
        us = {name: graph_us([lambda x=x, way=way: way(x) for x in xs]) for name, way in ways.items()}
        return {"plan": str(plan), "predicted_us": plan.predicted_us, "us": us}
    finally:
        torch.cuda.synchronize()
        pipeline.close()
