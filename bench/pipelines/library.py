"""A chain of bench/pipelines with random weights: in PyTorch, and in libtally-pipelines.so by the package `tally`."""
import os
import sys

import torch

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), os.pardir, os.pardir, "python"))
from tally.pipelines import chains, library
from tally.pipelines.library import Refused  # noqa: F401  for those who measure


class Operands:
    """Random weights of a chain; what eager PyTorch computes with them."""

    def __init__(self, chain, dtype):
        self.chain, self.dtype = chain, dtype
        self.weights, self.biases, self.scales, self.shifts = [], [], [], []
        for (columns, out), layer in zip(chain.widths(), chain.layers):
            random = lambda *shape: torch.randn(*shape, device="cuda")
            self.weights.append((random(out, columns) * 1.3 / columns ** 0.5).to(dtype))
            self.biases.append((random(out) * 0.1).to(dtype))
            self.scales.append((1 + 0.1 * random(out)).to(dtype) if layer.norm else None)
            self.shifts.append((0.1 * random(out)).to(dtype) if layer.norm else None)

    def forward(self, x, exact=False):
        cast = (lambda t: t.float()) if exact else (lambda t: t)
        functional = torch.nn.functional
        x = cast(x)
        hidden = x
        for i, layer in enumerate(self.chain.layers):
            if layer.concat:
                hidden = torch.cat([x, hidden], 1)
            hidden = functional.linear(hidden, cast(self.weights[i]), cast(self.biases[i]))
            if layer.activation:
                hidden = getattr(functional, layer.activation)(hidden)
            if layer.norm:
                hidden = functional.layer_norm(hidden, (layer.out,), cast(self.scales[i]), cast(self.shifts[i]))
            if layer.residual:
                hidden = hidden + x
        return hidden

    def has_fused(self):
        """Whether each activation is one that the library of matrix products does in its epilogue."""
        return all(layer.activation in ("", "relu") for layer in self.chain.layers)

    def fused(self, x):
        """As eager, but bias and ReLU are an epilogue of the matrix product (cuBLASLt)."""
        hidden = x
        for i, layer in enumerate(self.chain.layers):
            if layer.concat:
                hidden = torch.cat([x, hidden], 1)
            if layer.activation:
                hidden = torch._addmm_activation(self.biases[i], hidden, self.weights[i].t())
            else:
                hidden = torch.nn.functional.linear(hidden, self.weights[i], self.biases[i])
            if layer.norm:
                hidden = torch.nn.functional.layer_norm(hidden, (layer.out,), self.scales[i], self.shifts[i])
            if layer.residual:
                hidden = hidden + x
        return hidden

    def named(self):
        """The tensors by name: w0, b0, s0, t0 of the first layer."""
        columns = {"w": self.weights, "b": self.biases, "s": self.scales, "t": self.shifts}
        return {f"{kind}{i}": tensor for kind, tensors in columns.items() for i, tensor in enumerate(tensors) if tensor is not None}

    def described(self, rows):
        """As the package describes a chain."""
        layers = []
        for i, ((columns, out), layer) in enumerate(zip(self.chain.widths(), self.chain.layers)):
            norm = {"scale": f"s{i}", "shift": f"t{i}", "epsilon": 1e-5, "norm": layer.norm} if layer.norm else {}
            layers.append(chains.Layer(str(i), columns, out, f"w{i}", f"b{i}", layer.activation, concat="first" if layer.concat else "",
                                       residual=layer.residual, **norm))
        return chains.Chain("x", layers=layers, rows=rows, dtype="bf16" if self.dtype == torch.bfloat16 else "fp16")


class Pipeline:
    """Raises Refused with the library's sentence."""

    def __init__(self, operands, max_rows):
        tensors = operands.named()  # must live as long
        self.tensors = tensors
        self.pipeline = library.Pipeline(operands.described(max_rows), lambda name: tensors[name].data_ptr(),
                                         lambda name: tensors[name].stride(0), max_rows)

    def launch(self, x, y):
        self.pipeline.launch(torch.cuda.current_stream().cuda_stream, x.data_ptr(), x.stride(0), y.data_ptr(), y.stride(0), x.shape[0])

    def plan(self, rows):
        return self.pipeline.plan(rows).as_dict()

    def destroy(self):
        self.pipeline.close()
