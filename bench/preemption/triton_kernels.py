"""Triton kernels for python_kernels.py; a file of their own because Triton reads their source."""
import torch
import triton
import triton.language as tl


@triton.jit
def _softmax(rows, width: tl.constexpr):
    at = rows + tl.program_id(0) * width + tl.arange(0, width)
    values = tl.load(at)
    values = tl.exp(values * 3.0 - tl.max(values * 3.0, axis=0))
    tl.store(at, values / tl.sum(values, axis=0) * 4.0)


@triton.jit
def _polynomial(cells, count, block: tl.constexpr):
    at = tl.program_id(0) * block + tl.arange(0, block)
    value = tl.load(cells + at, mask=at < count)
    for _ in range(20):
        value = value * value * 0.5 + 0.25
    tl.store(cells + at, value, mask=at < count)


def softmax_rows(rows: torch.Tensor):
    _softmax[(rows.shape[0],)](rows, rows.shape[1])


def polynomial(rows: torch.Tensor):
    count = rows.numel() - 100
    _polynomial[(triton.cdiv(count, 1024),)](rows, count, 1024)
