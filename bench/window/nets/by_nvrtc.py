#!/usr/bin/env python3
"""Nets whose kernels depend on their input, by NVRTC and the driver API: gated cells, tokens routed to experts.

Needs libnvrtc, of the toolkit or of pip. Sums run in a fixed order and nothing is atomic: results are exact.
"""
import array
import ctypes
import glob
import os
import site

import episode

WIDTH, CELLS = 256, 8  # features of a row; cells of a layer that a gate chooses from, or experts

SOURCE = rb"""
#define WIDTH 256
#define CELLS 8
// Numbers from -scale to scale.
extern "C" __global__ void fill(float* to, unsigned size, unsigned seed, float scale) {
  const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= size) return;
  unsigned x = i * 2654435761u + seed * 2246822519u + 374761393u;
  x = (x ^ x >> 15) * 2246822519u;
  x = (x ^ x >> 13) * 3266489917u;
  to[i] = ((int)((x ^ x >> 16) >> 8) - (1 << 23)) * (scale / (1 << 23));
}
// to[r] = relu(from[r] * weights); a block for each row.
extern "C" __global__ void dense(const float* from, const float* weights, float* to) {
  const unsigned column = threadIdx.x, row = blockIdx.x;
  float sum = 0;
  for (unsigned k = 0; k < WIDTH; ++k) sum += from[row * WIDTH + k] * weights[k * WIDTH + column];
  to[row * WIDTH + column] = fmaxf(sum, 0.f);
}
// Half of the input, and half of the mean of the cells in `mask`.
extern "C" __global__ void combine(const float* from, const float* cells, float* to, unsigned size, unsigned mask) {
  const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= size) return;
  float sum = 0;
  for (unsigned cell = 0; cell < CELLS; ++cell)
    if (mask >> cell & 1) sum += cells[cell * size + i];
  to[i] = 0.5f * from[i] + 0.5f * sum / __popc(mask);
}
// scores[o] = gates[o] . (first row of from)
extern "C" __global__ void score(const float* from, const float* gates, float* scores) {
  float sum = 0;
  for (unsigned k = 0; k < WIDTH; ++k) sum += from[k] * gates[threadIdx.x * WIDTH + k];
  scores[threadIdx.x] = sum;
}
// One block, a thread per row: each row's place among the rows of its expert, and how many rows each expert has.
extern "C" __global__ void route(const float* from, const float* gates, unsigned* places, unsigned* counts) {
  __shared__ unsigned char chosen[1024];
  const unsigned row = threadIdx.x;
  float best = -1e30f;
  unsigned expert = 0;
  for (unsigned e = 0; e < CELLS; ++e) {
    float sum = 0;
    for (unsigned k = 0; k < WIDTH; ++k) sum += from[row * WIDTH + k] * gates[e * WIDTH + k];
    if (sum > best) { best = sum; expert = e; }
  }
  chosen[row] = expert;
  __syncthreads();
  unsigned before = 0, mine = 0;
  for (unsigned other = 0; other < blockDim.x; ++other) {
    before += chosen[other] < expert || (chosen[other] == expert && other < row);
    mine += row < CELLS && chosen[other] == row;
  }
  places[row] = before;
  if (row < CELLS) counts[row] = mine;
}
extern "C" __global__ void gather(const float* from, const unsigned* places, float* to) {
  to[places[blockIdx.x] * WIDTH + threadIdx.x] = from[blockIdx.x * WIDTH + threadIdx.x];
}
extern "C" __global__ void scatter(const float* from, const float* results, const unsigned* places, float* to) {
  const unsigned i = blockIdx.x * WIDTH + threadIdx.x;
  to[i] = 0.5f * from[i] + 0.5f * results[places[blockIdx.x] * WIDTH + threadIdx.x];
}
"""


def _compiler():
    places = [os.path.join(folder, "nvidia", "*", "lib", "libnvrtc.so.1*") for folder in site.getsitepackages() +
              [site.getusersitepackages()]] + ["/usr/local/cuda*/lib64/libnvrtc.so.1*", "/usr/local/cuda*/lib/libnvrtc.so.1*"]
    found = sorted((path for place in places for path in glob.glob(place) if ".alt." not in path), reverse=True)
    return ctypes.CDLL(found[0] if found else "libnvrtc.so")


def _ptx(source):
    nvrtc = _compiler()

    def call(name, *arguments):
        result = getattr(nvrtc, name)(*arguments)
        if result != 0:
            raise RuntimeError(f"{name}: NVRTC error {result}")
    program, size = ctypes.c_void_p(), ctypes.c_size_t()
    call("nvrtcCreateProgram", ctypes.byref(program), source, b"nets.cu", 0, None, None)
    options = (ctypes.c_char_p * 1)(b"--gpu-architecture=compute_80")
    call("nvrtcCompileProgram", program, 1, options)
    call("nvrtcGetPTXSize", program, ctypes.byref(size))
    text = ctypes.create_string_buffer(size.value)
    call("nvrtcGetPTX", program, text)
    return text


class Cuda:
    """Device 0's primary context, one stream, the kernels of SOURCE. Addresses are numbers."""

    def __init__(self):
        self.library = ctypes.CDLL("libcuda.so.1")
        self.call("cuInit", 0)
        context, module, self.stream = (ctypes.c_void_p() for _ in range(3))
        self.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), 0)
        self.call("cuCtxSetCurrent", context)
        self.call("cuStreamCreate", ctypes.byref(self.stream), 1)
        self.call("cuModuleLoadData", ctypes.byref(module), _ptx(SOURCE))
        self.module = module
        self.launch_kernel = self.library.cuLaunchKernelEx
        self.launch_kernel.argtypes = [ctypes.c_void_p] * 4
        self.fill = self.kernel("fill")

    def call(self, name, *arguments):
        result = getattr(self.library, name)(*arguments)
        if result != 0:
            raise RuntimeError(f"{name}: CUDA error {result}")

    def floats(self, count, seed=None, scale=1.0):
        """Device memory with numbers from -scale to scale, or unset."""
        address = ctypes.c_uint64()
        self.call("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(count * 4))
        if seed is not None:
            Launch(self, self.fill, 256, [address.value], [ctypes.c_uint32(count), ctypes.c_uint32(seed),
                                                           ctypes.c_float(scale)])((count + 255) // 256)
        return address.value

    def read(self, address, values):
        """Waits, as cudaMemcpyAsync and a synchronization would."""
        begin, count = values.buffer_info()
        self.call("cuMemcpyDtoHAsync_v2", ctypes.c_void_p(begin), ctypes.c_uint64(address),
                  ctypes.c_size_t(count * values.itemsize), self.stream)
        self.wait()
        return values

    def copy(self, to, source, size_bytes):
        self.call("cuMemcpyDtoDAsync_v2", ctypes.c_uint64(to), ctypes.c_uint64(source), ctypes.c_size_t(size_bytes), self.stream)

    def wait(self):
        self.call("cuStreamSynchronize", self.stream)

    def kernel(self, name):
        function = ctypes.c_void_p()
        self.call("cuModuleGetFunction", ctypes.byref(function), self.module, name.encode())
        return function


class Config(ctypes.Structure):
    """CUlaunchConfig."""
    _fields_ = [("grid", ctypes.c_uint * 3), ("block", ctypes.c_uint * 3), ("shared_bytes", ctypes.c_uint), ("stream", ctypes.c_void_p),
                ("attributes", ctypes.c_void_p), ("num_attributes", ctypes.c_uint)]


class Launch:
    """A kernel with its parameters, made once, as Python is slow: addresses, then numbers. Both may be changed."""

    def __init__(self, cuda, kernel, threads, addresses, numbers=()):
        self.enqueue, self.kernel = cuda.launch_kernel, kernel.value
        self.config = Config((1, 1, 1), (threads, 1, 1), 0, cuda.stream.value, None, 0)
        self.numbers = list(numbers)
        self.addresses = [ctypes.c_uint64(address) for address in addresses]
        values = self.addresses + self.numbers
        self.parameters = (ctypes.c_void_p * len(values))(*[ctypes.addressof(value) for value in values])
        self.where = ctypes.addressof(self.config), ctypes.addressof(self.parameters)

    def __call__(self, blocks):
        self.config.grid[0] = blocks
        result = self.enqueue(self.where[0], self.kernel, self.where[1], None)
        if result != 0:
            raise RuntimeError(f"cuLaunchKernelEx: CUDA error {result}")


class Net(episode.Case):
    """Layers of cells, each of two products, from self.x to self.x."""
    rows, layers, steps = 128, 8, 16

    def __init__(self):
        if episode.is_small:
            self.rows, self.layers = 8, 2
        self.cuda = Cuda()
        self.size = self.rows * WIDTH
        scale = (6 / WIDTH) ** 0.5
        self.weights = [[[self.cuda.floats(WIDTH * WIDTH, (layer * CELLS + cell) * 2 + half, scale) for half in (0, 1)]
                         for cell in range(CELLS)] for layer in range(self.layers)]
        self.inputs = [self.cuda.floats(self.size, 1000 + number) for number in range(self.steps)]
        self.x, self.y = self.cuda.floats(self.size), self.cuda.floats(self.size)
        self.hidden, self.cells = self.cuda.floats(self.size * CELLS), self.cuda.floats(self.size * CELLS)
        self.results = self.cuda.floats(self.steps * self.size)
        self.kernels = {name: self.cuda.kernel(name) for name in ("dense", "combine", "score", "route", "gather", "scatter")}

    def launch(self, name, threads, addresses, numbers=()):
        return Launch(self.cuda, self.kernels[name], threads, addresses, numbers)

    def wait(self):
        self.cuda.wait()

    def result(self):
        return self.cuda.read(self.results, array.array("f", bytes(4 * self.steps * self.size))).tobytes()

    def keep(self, number, address):
        self.cuda.copy(self.results + number % self.steps * self.size * 4, address, self.size * 4)


class Gated(Net):
    """A controller looks at the input and says which cells of each layer run (as in InstaNAS, SkipNet, CondConv)."""

    def __init__(self):
        super().__init__()
        cuda = self.cuda
        self.gates = cuda.floats(self.layers * CELLS * WIDTH, 77)
        self.scores = cuda.floats(self.layers * CELLS)
        self.scored = array.array("f", bytes(4 * self.layers * CELLS))
        self.score = [self.launch("score", self.layers * CELLS, [given, self.gates, self.scores]) for given in self.inputs]
        self.plan = []
        for layer, weights in enumerate(self.weights):
            source, target = (self.x, self.y) if layer % 2 == 0 else (self.y, self.x)
            pairs = []
            for cell, (first, second) in enumerate(weights):
                hidden, out = self.hidden + cell * self.size * 4, self.cells + cell * self.size * 4
                pairs.append((self.launch("dense", WIDTH, [source, first, hidden]), self.launch("dense", WIDTH, [hidden, second, out])))
            self.plan.append((pairs, self.launch("combine", 256, [source, self.cells, target],
                                                 [ctypes.c_uint32(self.size), ctypes.c_uint32()])))

    def masks(self, number):
        """Which cells run for this input; the host waits for that once a step."""
        self.score[number](1)
        self.cuda.read(self.scores, self.scored)
        return tuple(sum(1 << cell for cell in range(CELLS) if self.scored[layer * CELLS + cell] > 0) or 1
                     for layer in range(self.layers))

    def layers_of(self, masks):
        for (pairs, combine), mask in zip(self.plan, masks):
            for cell, (first, second) in enumerate(pairs):
                if mask >> cell & 1:
                    first(self.rows)
                    second(self.rows)
            combine.numbers[1].value = mask
            combine(self.size // 256)

    def step(self, number):
        masks = self.masks(number % self.steps)
        self.cuda.copy(self.x, self.inputs[number % self.steps], self.size * 4)
        self.layers_of(masks)
        self.keep(number, self.x)


class Graphs(Gated):
    """The same with a graph for each choice of cells, captured when it first comes."""

    def __init__(self):
        super().__init__()
        self.graphs = {}

    def layers_of(self, masks):
        cuda = self.cuda
        if masks not in self.graphs:
            graph, ready = ctypes.c_void_p(), ctypes.c_void_p()
            cuda.call("cuStreamBeginCapture_v2", cuda.stream, 1)
            super().layers_of(masks)
            cuda.call("cuStreamEndCapture", cuda.stream, ctypes.byref(graph))
            cuda.call("cuGraphInstantiateWithFlags", ctypes.byref(ready), graph, ctypes.c_uint64(0))
            self.graphs[masks] = ready
        cuda.call("cuGraphLaunch", self.graphs[masks], cuda.stream)


class Fixed(Gated):
    """All cells of each layer, so that the host never waits."""

    def masks(self, number):
        return ((1 << CELLS) - 1,) * self.layers


class FixedGraph(Fixed, Graphs):
    pass


class Routed(Net):
    """Each layer sends each row to one of the experts, and the host has to know how many each has got."""
    rows, layers, steps = 512, 4, 16  # rows: at most the threads of a block

    def __init__(self):
        super().__init__()
        cuda = self.cuda
        self.counted = array.array("I", bytes(4 * CELLS))
        self.counts, places, sorted_rows = cuda.floats(CELLS), cuda.floats(self.rows), cuda.floats(self.size)
        self.plan = []
        for layer, weights in enumerate(self.weights):
            source, target = (self.x, self.y) if layer % 2 == 0 else (self.y, self.x)
            gates = cuda.floats(CELLS * WIDTH, 500 + layer)
            experts = [(self.launch("dense", WIDTH, [sorted_rows, first, self.hidden]),
                        self.launch("dense", WIDTH, [self.hidden, second, self.cells]), sorted_rows) for first, second in weights]
            self.plan.append((self.launch("route", self.rows, [source, gates, places, self.counts]),
                              self.launch("gather", WIDTH, [source, places, sorted_rows]), experts,
                              self.launch("scatter", WIDTH, [source, self.cells, places, target])))

    def step(self, number):
        self.cuda.copy(self.x, self.inputs[number % self.steps], self.size * 4)
        for route, gather, experts, scatter in self.plan:
            route(1)
            self.cuda.read(self.counts, self.counted)
            gather(self.rows)
            begin = 0
            for (first, second, given), rows in zip(experts, self.counted):
                if rows == 0:
                    continue
                offset = begin * WIDTH * 4
                for launch, source, target in ((first, given, self.hidden), (second, self.hidden, self.cells)):
                    launch.addresses[0].value, launch.addresses[2].value = source + offset, target + offset
                    launch(rows)
                begin += rows
            scatter(self.rows)
        self.keep(number, self.x)


if __name__ == "__main__":
    episode.main({"all cells": Fixed, "gated cells": Gated, "routed to experts": Routed, "all cells, captured": FixedGraph,
                  "gated cells, captured": Graphs})
