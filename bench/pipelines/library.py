"""libtally-pipelines.so by ctypes, and the weights of a chain."""
import ctypes
import os

import torch

ACTIVATIONS = {"relu": 1, "gelu": 2, "gelu_tanh": 3, "silu": 4}
NORMS = {"layer": 1, "rms": 2}


class Plan(ctypes.Structure):
    _fields_ = [("warpgroups", ctypes.c_int), ("cluster", ctypes.c_int), ("weights_resident", ctypes.c_int),
                ("stages", ctypes.c_int), ("shared_bytes", ctypes.c_int), ("predicted_us", ctypes.c_double)]


class Refused(Exception):
    pass


def load(path):
    library = ctypes.CDLL(os.path.abspath(path))
    library.tallyPipelineCreate.restype = ctypes.c_void_p
    library.tallyPipelineError.restype = ctypes.c_char_p
    for name in ("AddLinear", "AddActivation", "AddNorm", "AddConcat", "AddResidual", "Instantiate", "Launch", "Query"):
        getattr(library, "tallyPipeline" + name).restype = ctypes.c_int
    return library


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


class Pipeline:
    """Raises Refused with the library's sentence."""

    def __init__(self, library, operands, max_rows):
        self.library = library
        chain = operands.chain
        self.handle = ctypes.c_void_p(library.tallyPipelineCreate(0 if operands.dtype == torch.bfloat16 else 1))
        self.operands = operands  # its tensors must live as long
        for i, ((columns, out), layer) in enumerate(zip(chain.widths(), chain.layers)):
            if layer.concat:
                self.call("AddConcat", 0)
            self.call("AddLinear", self.address(operands.weights[i]), ctypes.c_size_t(operands.weights[i].stride(0)),
                      self.address(operands.biases[i]), columns, out)
            if layer.activation:
                self.call("AddActivation", ACTIVATIONS[layer.activation])
            if layer.norm:
                self.call("AddNorm", NORMS[layer.norm], self.address(operands.scales[i]), self.address(operands.shifts[i]),
                          ctypes.c_float(1e-5))
            if layer.residual:
                self.call("AddResidual")
        self.call("Instantiate", ctypes.c_int64(max_rows))

    @staticmethod
    def address(tensor):
        return ctypes.c_void_p(tensor.data_ptr() if tensor is not None else None)

    def call(self, name, *arguments):
        if getattr(self.library, "tallyPipeline" + name)(self.handle, *arguments) != 0:
            raise Refused(self.library.tallyPipelineError(self.handle).decode())

    def launch(self, x, y):
        self.call("Launch", ctypes.c_void_p(torch.cuda.current_stream().cuda_stream), self.address(x),
                  ctypes.c_size_t(x.stride(0)), self.address(y), ctypes.c_size_t(y.stride(0)), ctypes.c_int64(x.shape[0]))

    def plan(self, rows):
        plan = Plan()
        self.call("Query", ctypes.c_int64(rows), ctypes.byref(plan))
        return plan

    def destroy(self):
        self.library.tallyPipelineDestroy(self.handle)
