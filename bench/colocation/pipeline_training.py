"""No training: a chain of bench/pipelines, again and again, by libtally-pipelines.so. Best-effort work whose launches take milliseconds, each a
single wave of blocks. Through CUDA's driver API, so it needs no torch, and runs on the software GPU, too."""
import ctypes
import hashlib
import os
import random
import sys

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), os.pardir, os.pardir)
sys.path += [os.path.join(ROOT, "bench", "pipelines"), os.path.join(ROOT, "python")]
# pylint: disable=wrong-import-position
import catalogue
import chains
import stand_ins
from tally.pipelines import chains as described
from tally.pipelines import library
# pylint: enable=wrong-import-position

TILE_ROWS = 64
MULTIPROCESSOR_COUNT = 16  # CU_DEVICE_ATTRIBUTE_


class Training:
    def __init__(self, name):
        chain_name, tiles = catalogue.pipeline(name)
        chain = next(chain for chain in chains.CHAINS if chain.name == chain_name)
        self.gpu = stand_ins.Program(1, 1)
        count = ctypes.c_int()
        self.gpu.call("cuDeviceGetAttribute", ctypes.byref(count), MULTIPROCESSOR_COUNT, 0)
        self.rows, self.widths = count.value * tiles * TILE_ROWS, (chain.input, chain.layers[-1].out)
        numbers = random.Random(20261121)
        layers, columns, weights = [], {}, {}
        for i, ((width, out), layer) in enumerate(zip(chain.widths(), chain.layers)):
            columns[str(i)] = width
            weights[str(i)] = self._upload(_small_values(numbers, width * out))
            norm = {"norm": layer.norm, "epsilon": 1e-5} if layer.norm else {}
            layers.append(described.Layer(str(i), width, out, str(i), None, layer.activation, concat="first" if layer.concat else "",
                                          residual=layer.residual, **norm))
        self.x = self._upload(_small_values(numbers, TILE_ROWS * chain.input) * (self.rows // TILE_ROWS))
        self.y = self._upload(bytes(2 * self.rows * self.widths[1]))
        self.pipeline = library.Pipeline(described.Chain("x", layers=layers, rows=self.rows, dtype="bf16"), weights.get, columns.get, self.rows)
        self.step()()
        result = ctypes.create_string_buffer(2 * self.rows * self.widths[1])
        self.gpu.call("cuMemcpyDtoH_v2", result, ctypes.c_uint64(self.y), ctypes.c_size_t(len(result)))
        self.facts = {"digest": hashlib.sha256(result.raw).hexdigest()[:16], "gpu_gib": round(2 * self.rows * sum(self.widths) / 2**30, 2)}

    def _upload(self, values):
        memory = ctypes.c_uint64()
        self.gpu.call("cuMemAlloc_v2", ctypes.byref(memory), ctypes.c_size_t(len(values)))
        self.gpu.call("cuMemcpyHtoD_v2", memory, values, ctypes.c_size_t(len(values)))
        return memory.value

    def step(self):
        """Queues a launch; returns what waits for it."""
        self.pipeline.launch(None, self.x, self.widths[0], self.y, self.widths[1], self.rows)
        return self.gpu.wait


def _small_values(numbers, count):
    """bf16 between 0.007 and 0.03, of both signs."""
    values = bytearray(2 * count)
    values[0::2], values[1::2] = numbers.randbytes(count), bytes(numbers.choices(b"\x3c\xbc", k=count))
    return bytes(values)
