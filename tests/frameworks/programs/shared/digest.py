"""What one program of tests/frameworks computed: a line per part and one `digest <SHA-256>` over all of them.

    from shared.digest import Digest
    digest = Digest()
    digest.add("matrix product", x @ y)      # arrays of torch, jax, cupy, numpy; numbers, strings, bytes, lists of them
    digest.print()                           # last thing that the program does with the GPU

With `--values FILE` on the program's command line, `print` also keeps up to 1024 elements of everything floating-point in
FILE (JSON), from which run.py tells how far two runs are apart. Importing this module also makes a program that hangs say where: all threads' stacks go to
stderr after TALLY_FRAMEWORKS_DUMP_AFTER seconds.
"""
import faulthandler
import hashlib
import json
import math
import os
import sys

SAMPLES = 1024

faulthandler.enable()
if float(os.environ.get("TALLY_FRAMEWORKS_DUMP_AFTER", "0")) > 0:
    faulthandler.dump_traceback_later(float(os.environ["TALLY_FRAMEWORKS_DUMP_AFTER"]))


def _torch_to_host(tensor):
    """Bytes, dtype and shape of a torch tensor, and its values as float64 where they are floating point."""
    import torch

    tensor = tensor.detach()
    if tensor.layout != torch.strided:
        tensor = tensor.to_dense()
    tensor = tensor.cpu().resolve_conj().resolve_neg().contiguous()
    content = tensor.reshape(-1).view(torch.uint8).numpy().tobytes() if tensor.numel() else b""
    values = None
    if tensor.is_complex():
        values = torch.view_as_real(tensor).double().reshape(-1).numpy()
    elif tensor.is_floating_point():
        values = tensor.double().reshape(-1).numpy()
    return content, f"{tensor.dtype}{tuple(tensor.shape)}", values


def _to_host(value):
    if isinstance(value, (str, bytes, bool, int, float, type(None))):
        content = value if isinstance(value, bytes) else repr(value).encode()
        return content, type(value).__name__, [value] if isinstance(value, float) else None
    if type(value).__module__.split(".")[0] == "torch" or hasattr(value, "is_sparse"):
        return _torch_to_host(value)
    if hasattr(value, "get") and type(value).__module__.startswith("cupy"):
        value = value.get()
    import numpy

    array = numpy.ascontiguousarray(numpy.asarray(value))
    values = None
    if array.dtype.kind == "c":
        values = array.astype(numpy.complex128).reshape(-1).view(numpy.float64)
    elif array.dtype.kind not in "iubSUO":  # "f", and ml_dtypes' "V" (bfloat16)
        values = array.astype(numpy.float64).reshape(-1)
    return array.tobytes(), f"{array.dtype}{array.shape}", values


class Digest:
    """Hashes parts in the order in which they are added. One per program."""

    def __init__(self):
        self._hash = hashlib.sha256()
        self._values = {}

    def add(self, name, *values):
        """Fails if a floating-point value is not finite: a digest of NaNs would hide what went wrong."""
        part = hashlib.sha256()
        for value in values:
            for item in value if isinstance(value, (list, tuple)) else (value,):
                content, kind, numbers = _to_host(item)
                part.update(kind.encode())
                part.update(content)
                if numbers is not None:
                    self._keep(name, numbers)
        self._hash.update(name.encode() + part.digest())
        print(f"part {name}: {part.hexdigest()[:16]}", flush=True)

    def _keep(self, name, numbers):
        if isinstance(numbers, list):
            num_bad, size, samples = sum(not math.isfinite(number) for number in numbers), len(numbers), numbers
        else:
            import numpy

            num_bad, size = int((~numpy.isfinite(numbers)).sum()), numbers.size
            samples = numbers[:: max(1, size // SAMPLES)][:SAMPLES].tolist()
        if num_bad:
            raise ValueError(f"part '{name}': {num_bad} of {size} values are not finite")
        self._values[f"{name} #{len(self._values)}"] = samples

    def print(self):
        if "--values" in sys.argv:
            with open(sys.argv[sys.argv.index("--values") + 1], "w", encoding="ascii") as output:
                json.dump(self._values, output)
        print(f"digest {self._hash.hexdigest()}", flush=True)
        faulthandler.cancel_dump_traceback_later()
