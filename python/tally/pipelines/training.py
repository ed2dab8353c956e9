"""The operations tally::train and tally::train_backward of PyTorch: a chain that trains, as one kernel there and back.

    tally::train(Tensor x, Tensor[] operands, str chain) -> (Tensor y, Tensor saved)
    tally::train_backward(Tensor dy, Tensor saved, Tensor[] operands, str chain) -> (Tensor dz, Tensor dx)

`saved` and `dz` are as tally/pipelines.h says, dx is empty if the kernel does not give it. Gradients of weights and
biases follow from them by PyTorch's own operations, so inductor compiles those. Where the pipelines cannot run, both do
the same in PyTorch's operations; one of them may, and the other not.
"""
import operator

import torch
from torch.nn import functional

from tally.pipelines import operation

IS_POSSIBLE = hasattr(torch.library, "register_autograd")  # from PyTorch 2.4 on
_TILE, _WORD = 64, 64  # rows, and columns, of a mask's words
_MASK_ELEMENTS = 256  # that a tile's words of 64 columns take


def _inner(chain):
    """Columns that leave each layer but the last."""
    return [layer.out for layer in chain.layers[:-1]]


def _masks(chain, rows):
    """Elements of all masks."""
    return -(-rows // _TILE) * _MASK_ELEMENTS * sum(-(-out // _WORD) for out in _inner(chain))


def _stack(chain, values, rows, first, count):
    """[count][rows][out] of layers that give as many columns, of `saved` or `dz`."""
    out = chain.layers[first].out
    at = rows * sum(_inner(chain)[:first])
    return values[at:at + count * rows * out].view(count, rows, out)


def _matrices(chain, values, rows):
    """[rows][out] of each layer but the last, of `saved` or `dz`."""
    return [_stack(chain, values, rows, i, 1)[0] for i in range(len(chain.layers) - 1)]


def _alike(chain):
    """(first, how many) layers in a row whose weights' gradients are one product; neither the first nor the last is."""
    shapes = [(layer.columns, layer.out) for layer in chain.layers]
    first = 0
    while first < len(shapes):
        end = first + 1
        while 0 < first and end < len(shapes) - 1 and shapes[end] == shapes[first]:
            end += 1
        yield first, end - first
        first = end


def _mask(values):
    """What the kernel's backward pass reads of them: MaskAt in pipelines/stages/common.cuh."""
    tiles, words = -(-values.shape[0] // _TILE), -(-values.shape[1] // _WORD)
    bits = torch.zeros(tiles * _TILE, words * _WORD, dtype=torch.int32, device=values.device)
    bits[:values.shape[0], :values.shape[1]] = values != 0
    # Rows: warp, upper or lower 8, quad. Columns: word, group of 8, thread of the quad, upper or lower of two.
    bits = bits.view(tiles, 4, 2, 8, words, 8, 4, 2).permute(0, 4, 1, 3, 6, 5, 2, 7)
    group, lower_row, upper = (torch.arange(n, dtype=torch.int32, device=values.device) for n in (8, 2, 2))
    shifts = 2 * group[:, None, None] + lower_row[:, None] + 16 * upper
    return (bits << shifts).sum((5, 6, 7), dtype=torch.int32).reshape(-1).view(values.dtype)


def _train_plainly(x, operands, chain):
    hidden, saved = x.reshape(-1, x.shape[-1]), []
    for layer in chain.layers:
        hidden = functional.linear(hidden, operands[int(layer.weights)],
                                   None if layer.bias is None else operands[int(layer.bias)])
        hidden = torch.relu(hidden) if layer.activation else hidden
        saved.append(hidden)
    y = saved.pop()
    return y.reshape(*x.shape[:-1], y.shape[-1]), torch.cat([s.reshape(-1) for s in saved] + [_mask(s) for s in saved])


def _backward_plainly(dy, saved, operands, chain):
    gradient, dz = dy, []
    for layer, before, values in reversed(list(zip(chain.layers[1:], chain.layers, _matrices(chain, saved, len(dy))))):
        gradient = gradient @ operands[int(layer.weights)]
        gradient = gradient.masked_fill(values <= 0, 0) if before.activation else gradient
        dz.insert(0, gradient.reshape(-1))
    dx = gradient @ operands[int(chain.layers[0].weights)] if chain.with_dx() else dy.new_empty(0)
    return torch.cat(dz), dx


def _train_shapes(x, operands, text):
    chain = operation.runner(text).chain
    rows = x.numel() // x.shape[-1]
    return (x.new_empty((*x.shape[:-1], chain.layers[-1].out)),
            x.new_empty(rows * sum(_inner(chain)) + _masks(chain, rows)))


def _backward_shapes(dy, saved, operands, text):
    chain = operation.runner(text).chain
    dx = (len(dy), chain.layers[0].columns) if chain.with_dx() else (0,)
    return dy.new_empty(len(dy) * sum(_inner(chain))), dy.new_empty(dx)


def _train(x, operands, text):
    runner = operation.runner(text)
    rows = operation.rows_of(x)
    pipeline = runner.of(operands, x.device, len(rows))
    if pipeline is None:
        return _train_plainly(x, operands, runner.chain)
    y, saved = _train_shapes(x, operands, text)
    with torch.cuda.device(x.device):
        stream = torch.cuda.current_stream().cuda_stream
        pipeline.launch_forward(stream, rows.data_ptr(), rows.stride(0), y.data_ptr(), runner.out, saved.data_ptr(),
                                len(rows))
    return y, saved


def _train_backward(dy, saved, operands, text):
    runner = operation.runner(text)
    rows = operation.rows_of(dy)
    pipeline = runner.of(operands, dy.device, len(rows))
    if pipeline is None:
        return _backward_plainly(dy, saved, operands, runner.chain)
    dz, dx = _backward_shapes(dy, saved, operands, text)
    with torch.cuda.device(dy.device):
        stream = torch.cuda.current_stream().cuda_stream
        pipeline.launch_backward(stream, rows.data_ptr(), rows.stride(0), saved.data_ptr(), dz.data_ptr(),
                                 dx.data_ptr() if runner.chain.with_dx() else None, runner.chain.layers[0].columns,
                                 len(rows))
    return dz, dx


def insert(graph, x, operands, text):
    """Puts a call into an fx graph; the node of y."""
    both = graph.call_function(train, (x, operands, text))
    return graph.call_function(operator.getitem, (both, 0))


def _remember(ctx, inputs, output):
    x, operands, ctx.text = inputs
    ctx.save_for_backward(x, output[1], *operands)
    ctx.mark_non_differentiable(output[1])
    ctx.set_materialize_grads(False)


def _gradients(ctx, dy, _):
    x, saved, *operands = ctx.saved_tensors
    needs_x, needs_operands = ctx.needs_input_grad[:2]
    chain = operation.runner(ctx.text).chain
    rows = x.reshape(-1, x.shape[-1])
    dy = dy.reshape(len(rows), -1)
    dz, dx = train_backward(dy, saved, operands, ctx.text)
    gradients = [None] * len(operands)

    def add(names, of_all):
        """What of_all() gives, one for each name, as far as it is wanted."""
        wanted = [name is not None and needs_operands[int(name)] for name in names]
        for name, is_wanted, gradient in zip(names, wanted, of_all() if any(wanted) else ()):
            if is_wanted:
                known = gradients[int(name)]
                gradients[int(name)] = gradient if known is None else known + gradient

    last = len(chain.layers) - 1
    for first, count in _alike(chain):
        given = dy[None] if first == last else _stack(chain, dz, len(rows), first, count)
        taken = rows[None] if first == 0 else _stack(chain, saved, len(rows), first - 1, count)
        layers = chain.layers[first:first + count]
        if count == 1:  # the library splits its rows better than those of a batch of one
            add([layers[0].weights], lambda: [given[0].t() @ taken[0]])
        else:
            add([layer.weights for layer in layers], lambda: torch.bmm(given.transpose(1, 2), taken).unbind())
        add([layer.bias for layer in layers], lambda: given.sum(1).unbind())
    if needs_x and not chain.with_dx():
        dx = _stack(chain, dz, len(rows), 0, 1)[0] @ operands[int(chain.layers[0].weights)]
    return dx.reshape(x.shape) if needs_x else None, gradients, None


if IS_POSSIBLE:
    _library = torch.library.Library("tally", "FRAGMENT")
    for _schema, _on_gpu, _shapes in (
            ("train(Tensor x, Tensor[] operands, str chain) -> (Tensor, Tensor)", _train, _train_shapes),
            ("train_backward(Tensor dy, Tensor saved, Tensor[] operands, str chain) -> (Tensor, Tensor)",
             _train_backward, _backward_shapes)):
        _name = _library.define(_schema)
        _library.impl(_name, _on_gpu, "CUDA")
        _library.impl(_name, _shapes, "Meta")
    _library.impl("train", lambda x, operands, text: _train_plainly(x, operands, operation.runner(text).chain), "CPU")
    _library.impl("train_backward", lambda dy, saved, operands, text: _backward_plainly(
        dy, saved, operands, operation.runner(text).chain), "CPU")
    torch.library.register_autograd("tally::train", _gradients, setup_context=_remember, lib=_library)
    train, train_backward = torch.ops.tally.train.default, torch.ops.tally.train_backward.default
