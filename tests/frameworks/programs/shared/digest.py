"""What one program of tests/frameworks computed: a line per part and one `digest <SHA-256>` over all of them.

    from shared.digest import Digest
    digest = Digest()
    digest.add("matrix product", x @ y)      # arrays of torch, jax, cupy, numpy; numbers, strings, bytes, lists of them
    digest.print()                           # last thing that the program does with the GPU

With `--values FILE` on the program's command line, `print` also keeps up to 4096 elements of every floating-point part in
FILE (.npz); `python3 programs/shared/digest.py A.npz B.npz` prints how far two such files are apart (largest difference, relative to the
largest magnitude of its part). Importing this module also makes a program that hangs say where: all threads' stacks go to
stderr after TALLY_FRAMEWORKS_DUMP_AFTER seconds.
"""
import faulthandler
import hashlib
import os
import sys

SAMPLES = 4096

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
        return content, type(value).__name__, None
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
        import numpy

        if not numpy.isfinite(numbers).all():
            raise ValueError(f"part '{name}': {int((~numpy.isfinite(numbers)).sum())} of {numbers.size} values are not finite")
        step = max(1, numbers.size // SAMPLES)
        self._values[f"{name} #{len(self._values)}"] = numbers[::step][:SAMPLES]

    def print(self):
        if "--values" in sys.argv and self._values:
            import numpy

            numpy.savez(sys.argv[sys.argv.index("--values") + 1], **self._values)
        print(f"digest {self._hash.hexdigest()}", flush=True)
        faulthandler.cancel_dump_traceback_later()


def distance(left_path, right_path):
    """Largest difference of two value files, relative to the largest magnitude of the part that it is in."""
    import numpy

    worst = (0.0, "none")
    with numpy.load(left_path) as left, numpy.load(right_path) as right:
        if sorted(left.files) != sorted(right.files):
            return float("inf"), "other parts"
        for name in left.files:
            if left[name].shape != right[name].shape:
                return float("inf"), name
            scale = max(float(numpy.abs(left[name]).max(initial=0)), 1e-300)
            worst = max(worst, (float(numpy.abs(left[name] - right[name]).max(initial=0)) / scale, name))
    return worst


if __name__ == "__main__":
    print("%.3g in %s" % distance(sys.argv[1], sys.argv[2]))
