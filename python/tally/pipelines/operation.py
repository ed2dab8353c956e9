"""The operation tally::chain of PyTorch: one chain as one kernel, in place of its layers.

    tally::chain(Tensor x, Tensor[] operands, str chain) -> Tensor

It reads operands where they are, so new values of weights count at once. Where the pipeline cannot run (a first call
during capture, weights that are somewhere else in each call) PyTorch's own operations do the same.
"""
import functools
import logging
import threading

import torch

from tally.pipelines import plain, spec
from tally.pipelines.library import NoLibrary, Pipeline, PipelineError

_log = logging.getLogger("tally.pipelines")
_MOST_PLACES = 8  # sets of addresses of the operands of one chain in a model; alike chains have as many each
_ALIGNMENT, _PITCH = 16, 8  # bytes, elements: what the kernel wants of rows


def rows_of(x):
    """x as rows that the kernel can read; a copy if it has to be."""
    rows = x.reshape(-1, x.shape[-1])
    if rows.stride(1) != 1 or rows.stride(0) % _PITCH or rows.stride(0) < rows.shape[1] or rows.data_ptr() % _ALIGNMENT:
        rows = rows.clone(memory_format=torch.contiguous_format)
    return rows


class Runner:
    """One chain. Its pipelines live as long as the process: a CUDA graph may have captured a launch of any."""

    def __init__(self, text):
        self.chain = spec.parse(text)
        self.out = self.chain.layers[-1].out
        self.uses = 0  # chains like this one in models; none where the operation is called by hand
        self._lock = threading.Lock()
        self._pipelines = {}  # by device and addresses; None: it was refused

    def pipeline(self, operands, device):
        """For operands that are here. Raises what library.Pipeline raises."""
        if any(operand.dim() == 2 and operand.stride(1) != 1 or operand.dim() == 1 and operand.stride(0) != 1
               for operand in operands):
            raise PipelineError("the elements of a row of weights are not beside each other")
        with torch.cuda.device(device):
            return Pipeline(self.chain, lambda name: operands[int(name)].data_ptr(),
                            lambda name: operands[int(name)].stride(0), self.chain.rows)

    def of(self, operands, device, rows):
        """The pipeline for operands at these addresses; None: PyTorch's operations are to do it."""
        if not 0 < rows <= self.chain.rows:
            return None
        key = (device.index, *[(operand.data_ptr(), operand.stride()) for operand in operands])
        try:
            return self._pipelines[key]
        except KeyError:
            pass
        with self._lock:
            if key in self._pipelines:
                return self._pipelines[key]
            if len(self._pipelines) >= _MOST_PLACES * max(1, self.uses) or torch.cuda.is_current_stream_capturing():
                return None
            try:
                self._pipelines[key] = self.pipeline(operands, device)
            except (PipelineError, NoLibrary) as error:
                _log.warning("a chain of %d layers runs in PyTorch's operations: %s", len(self.chain.layers), error)
                self._pipelines[key] = None
            return self._pipelines[key]

    def launch(self, pipeline, x):
        y = torch.empty((*x.shape[:-1], self.out), dtype=x.dtype, device=x.device)
        rows = rows_of(x)
        with torch.cuda.device(x.device):
            stream = torch.cuda.current_stream().cuda_stream
            pipeline.launch(stream, rows.data_ptr(), rows.stride(0), y.data_ptr(), self.out, rows.shape[0])
        return y

    def __call__(self, x, operands):
        pipeline = self.of(operands, x.device, x.numel() // max(1, x.shape[-1]))
        if pipeline is None:
            return self.plainly(x, operands)
        return self.launch(pipeline, x)

    def plainly(self, x, operands):
        return plain.run(self.chain, x, lambda name: operands[int(name)])


@functools.lru_cache(maxsize=4096)
def runner(text):
    return Runner(text)


def _on_gpu(x, operands, chain):
    return runner(chain)(x, operands)


def _elsewhere(x, operands, chain):
    return runner(chain).plainly(x, operands)


def _shape_only(x, operands, chain):
    return x.new_empty((*x.shape[:-1], runner(chain).out))


_definition = torch.library.Library("tally", "DEF")
_definition.define("chain(Tensor x, Tensor[] operands, str chain) -> Tensor")
_definition.impl("chain", _on_gpu, "CUDA")
_definition.impl("chain", _elsewhere, "CPU")
_definition.impl("chain", _shape_only, "Meta")

chain = torch.ops.tally.chain.default
