"""Programs for spread_test.py, to be run under tally-run: CUDA graphs of tasks on tiles, in the seven shapes."""
import ctypes
import os
import random
import sys

from cuda_driver import Cuda
from graph_case import KernelNode

SIDE, PITCH = 16, 4096  # a tile: rows of words; bytes from row to row of a matrix
TILES = 64              # a row of tiles, in each of two matrices
MATRIX_BYTES = 1 << 20  # as much as is exportable
MASK = 2**32 - 1
SHAPES = ("chain", "independent", "fork-join", "wavefront", "tree-sum", "butterfly", "random")

# out[y][x] = out * 3 + a * 5 + b * 7 + salt, one thread a word, after `rounds` of work.
# hidden: word * 9 + salt, of a tile that it finds in memory.
PTX = b"""
.version 7.0
.target sm_80
.address_size 64
.visible .entry combine(.param .u64 out, .param .u64 a, .param .u64 b, .param .u32 salt, .param .u32 rounds) {
  .reg .b32 %r<16>;
  .reg .b64 %d<16>;
  .reg .pred %p<2>;
  ld.param.u64 %d1, [out];
  ld.param.u64 %d2, [a];
  ld.param.u64 %d3, [b];
  ld.param.u32 %r1, [salt];
  ld.param.u32 %r10, [rounds];
  mov.u32 %r11, 0;
AGAIN:
  add.u32 %r11, %r11, 1;
  setp.lt.u32 %p1, %r11, %r10;
  @%p1 bra AGAIN;
  mov.u32 %r2, %tid.x;
  mov.u32 %r3, %tid.y;
  mul.wide.u32 %d4, %r3, 4096;
  mul.wide.u32 %d5, %r2, 4;
  add.u64 %d6, %d4, %d5;
  add.u64 %d7, %d1, %d6;
  add.u64 %d8, %d2, %d6;
  add.u64 %d9, %d3, %d6;
  ld.global.u32 %r4, [%d7];
  ld.global.u32 %r5, [%d8];
  ld.global.u32 %r6, [%d9];
  mad.lo.u32 %r7, %r4, 3, %r1;
  mad.lo.u32 %r7, %r5, 5, %r7;
  mad.lo.u32 %r7, %r6, 7, %r7;
  st.global.u32 [%d7], %r7;
  ret;
}
.visible .entry hidden(.param .u64 place, .param .u32 salt) {
  .reg .b32 %r<8>;
  .reg .b64 %d<8>;
  ld.param.u64 %d1, [place];
  ld.global.u64 %d2, [%d1];
  ld.param.u32 %r1, [salt];
  mov.u32 %r2, %tid.x;
  mov.u32 %r3, %tid.y;
  mul.wide.u32 %d4, %r3, 4096;
  mul.wide.u32 %d5, %r2, 4;
  add.u64 %d6, %d4, %d5;
  add.u64 %d7, %d2, %d6;
  ld.global.u32 %r4, [%d7];
  mad.lo.u32 %r5, %r4, 9, %r1;
  st.global.u32 [%d7], %r5;
  ret;
}
\0"""


def shape_of(name, count=120):
    """By task: those whose tiles it reads. As bench/taskgraph/graph_shape.h has them, two at most."""
    if name == "chain":
        return [[i - 1] if i else [] for i in range(count)]
    if name == "independent":
        return [[] for _ in range(count)]
    if name == "fork-join":
        return [[] if i == 0 else [i - i % 9] if i % 9 else [i - 1, i - 8] for i in range(count)]
    if name == "wavefront":
        return [[j for j, there in ((i - 10, i >= 10), (i - 1, i % 10 != 0)) if there] for i in range(count)]
    if name == "tree-sum":
        return [[] if i < 60 else [2 * (i - 60), 2 * (i - 60) + 1] for i in range(119)] + [[118]]
    if name == "butterfly":
        return [[] if i < 8 else [(i // 8 - 1) * 8 + i % 8, (i // 8 - 1) * 8 + (i % 8 ^ (1 << (i // 8 % 3)))] for i in range(count)]
    some = random.Random(7)
    return [sorted({some.randrange(i) for _ in range(some.randrange(3))}) if i else [] for i in range(count)]


class Tiles(Cuda):
    """Two matrices with a row of tiles each; what they should hold is computed beside."""

    def __init__(self, rounds=1):
        super().__init__()
        module = ctypes.c_void_p()
        self.rounds = rounds
        # Of code that was loaded with options (here CU_JIT_OPTIMIZATION_LEVEL) nobody knows how to make it again.
        options, values = (ctypes.c_int * 1)(7), (ctypes.c_void_p * 1)(3)
        self.call("cuModuleLoadDataEx", ctypes.byref(module), PTX, int("SPREAD_CASE_OPTIONS" in os.environ), options, values)
        self.kernels = {}
        for name in (b"combine", b"hidden"):
            self.kernels[name.decode()] = ctypes.c_void_p()
            self.call("cuModuleGetFunction", ctypes.byref(self.kernels[name.decode()]), module, name)
        self.streams = [ctypes.c_void_p(), ctypes.c_void_p()]
        for stream in self.streams:
            self.call("cuStreamCreate", ctypes.byref(stream), 1)
        self.matrices = [self.allocate(MATRIX_BYTES) for _ in range(2)]
        for matrix in self.matrices:
            self.call("cuMemsetD32_v2", matrix, 1, ctypes.c_size_t(MATRIX_BYTES // 4))
        # Too small to be at other GPUs.
        self.small = self.allocate(SIDE * PITCH)
        self.call("cuMemsetD32_v2", self.small, 2, ctypes.c_size_t(SIDE * PITCH // 4))
        self.call("cuCtxSynchronize")
        self.expected = [[1] * (SIDE * SIDE) for _ in range(2 * TILES)]

    def address(self, tile):
        return ctypes.c_uint64(self.matrices[tile // TILES].value + tile % TILES * SIDE * 4)

    def parameters_of(self, kernel, *arguments):
        kept = (ctypes.c_void_p * len(arguments))(*(ctypes.addressof(argument) for argument in arguments))
        node = KernelNode(func=self.kernels[kernel].value, parameters=ctypes.cast(kept, ctypes.c_void_p).value)
        node.grid[:], node.block[:] = (1, 1, 1), (SIDE, SIDE, 1)
        node.keeps = (kept, arguments)
        return node

    def launch_kernel(self, node, stream=0):
        self.call("cuLaunchKernel", ctypes.c_void_p(node.func), 1, 1, 1, SIDE, SIDE, 1, 0, self.streams[stream],
                  ctypes.c_void_p(node.parameters), None)

    def check(self):
        for stream in self.streams:
            self.call("cuStreamSynchronize", stream)
        for number, matrix in enumerate(self.matrices):
            found = (ctypes.c_uint32 * (MATRIX_BYTES // 4))()
            self.call("cuMemcpyDtoH_v2", ctypes.byref(found), matrix, ctypes.c_size_t(MATRIX_BYTES))
            expected = [1] * (MATRIX_BYTES // 4)
            for tile in range(TILES):
                for row in range(SIDE):
                    begin = row * PITCH // 4 + tile * SIDE
                    expected[begin:begin + SIDE] = self.expected[number * TILES + tile][row * SIDE:(row + 1) * SIDE]
            if list(found) != expected:
                sys.exit(f"wrong words in matrix {number}")


class Shaped(Tiles):
    """One task on each tile, of whom the tasks that it comes behind are read. Some that come first read what is at home only."""

    def __init__(self, shape, rounds=1):
        super().__init__(rounds)
        self.tasks = [(task, before) for task, before in enumerate(shape_of(shape))]
        graph = ctypes.c_void_p()
        self.call("cuGraphCreate", ctypes.byref(graph), 0)
        self.nodes = []
        for task, before in self.tasks:
            # Those behind that read it come first in no order of theirs: each tile is written by one task.
            self.nodes.append(self.add(graph, [self.nodes[other] for other in before], self.combine(task, before)))
        self.graph, self.exec = graph, self.instantiate(graph)

    def tile(self, task):
        return task * 37 % (2 * TILES)

    def combine(self, task, before):
        a = before[0] if before else task
        b = self.address(self.tile(before[-1] if before else task))
        if self.reads_small(task, before):
            b = self.small
        return self.parameters_of("combine", self.address(self.tile(task)), self.address(self.tile(a)), b,
                                  ctypes.c_uint32(task), ctypes.c_uint32(self.rounds))

    @staticmethod
    def reads_small(task, before):
        return not before and task % 5 == 4

    def launch_before(self, stream):
        """A kernel on that stream, which takes long, on the tiles of the first and the last task."""
        for task in (0, self.tasks[-1][0]):
            tile = self.address(self.tile(task))
            self.launch_kernel(self.parameters_of("combine", tile, tile, tile, ctypes.c_uint32(3), ctypes.c_uint32(3000)), stream)
            words = self.expected[self.tile(task)]
            words[:] = [(word * 15 + 3) & MASK for word in words]

    def add(self, graph, behind, parameters):
        node = ctypes.c_void_p()
        before = (ctypes.c_void_p * len(behind))(*(one.value for one in behind))
        self.call("cuGraphAddKernelNode_v2", ctypes.byref(node), graph, before, ctypes.c_size_t(len(behind)),
                  ctypes.byref(parameters))
        return node

    def instantiate(self, graph):
        made = ctypes.c_void_p()
        self.call("cuGraphInstantiateWithFlags", ctypes.byref(made), graph, ctypes.c_ulonglong(0))
        return made

    def launch(self, stream=0):
        self.call("cuGraphLaunch", self.exec, self.streams[stream])
        for task, before in self.tasks:
            words = self.expected[self.tile(task)]
            a = self.expected[self.tile(before[0])] if before else words
            b = self.expected[self.tile(before[-1])] if before else words
            if self.reads_small(task, before):
                b = [2] * len(words)
            words[:] = [(w * 3 + x * 5 + y * 7 + task) & MASK for w, x, y in zip(words, a, b)]


def shapes(*names):
    """Each launched three times, on two streams in turns, with kernels before and behind it that nobody waits for."""
    for name in names or SHAPES:
        graph = Shaped(name)
        for number in range(3):
            graph.launch_before(number % 2)
            graph.launch(number % 2)
            graph.launch_before(number % 2)
            graph.call("cuStreamSynchronize", graph.streams[number % 2])  # streams are in no order among them
        graph.check()
    print("OK")


class Region(ctypes.Structure):
    """tallyTaskRegion of include/tally/taskgraph.h."""
    _fields_ = [("address", ctypes.c_uint64), ("row_bytes", ctypes.c_size_t), ("rows", ctypes.c_size_t),
                ("pitch", ctypes.c_size_t), ("access", ctypes.c_int)]


READS, WRITES, SCRATCH = 1, 2, 4


class Captured(Tiles):
    """Tasks as `hidden` does them: it finds its tile in memory, so that nobody but the program knows which it is."""

    def __init__(self, tasks, place_bytes=MATRIX_BYTES, kernels=2):
        super().__init__()
        self.tasks, self.num_kernels = tasks, kernels
        self.places = self.allocate(place_bytes)
        where = (ctypes.c_uint64 * (2 * TILES))(*(self.address(tile).value for tile in range(2 * TILES)))
        self.call("cuMemcpyHtoD_v2", self.places, where, ctypes.c_size_t(ctypes.sizeof(where)))
        self.scratch = self.allocate(MATRIX_BYTES)

    def regions(self, tile):
        return [Region(self.address(tile).value, SIDE * 4, SIDE, PITCH, READS | WRITES),
                Region(self.places.value + 8 * tile, 8, 1, 0, READS), Region(self.scratch.value, 4096, 1, 0, SCRATCH)]

    def begin(self, regions):
        return self.library.tally_task_begin(self.streams[0], (Region * len(regions))(*regions), ctypes.c_size_t(len(regions)))

    def launch_hidden(self, tile, salt):
        self.launch_kernel(self.parameters_of("hidden", ctypes.c_uint64(self.places.value + 8 * tile), ctypes.c_uint32(salt)))

    def capture(self):
        """Several kernels a task: together and in order, or the words are wrong."""
        self.call("cuStreamBeginCapture_v2", self.streams[0], 2)
        for tile in self.tasks:
            if self.begin(self.regions(tile)) != 0:
                sys.exit("a task is refused")
            for salt in range(tile, tile + self.num_kernels):
                self.launch_hidden(tile, salt)
            if self.library.tally_task_end(self.streams[0]) != 0:
                sys.exit("a task's end is refused")
        graph, self.exec = ctypes.c_void_p(), ctypes.c_void_p()
        self.call("cuStreamEndCapture", self.streams[0], ctypes.byref(graph))
        self.call("cuGraphInstantiateWithFlags", ctypes.byref(self.exec), graph, ctypes.c_ulonglong(0))
        self.call("cuGraphDestroy", graph)

    def launch(self):
        self.call("cuGraphLaunch", self.exec, self.streams[0])
        for tile in self.tasks:
            for salt in range(tile, tile + self.num_kernels):
                self.expected[tile][:] = [(word * 9 + salt) & MASK for word in self.expected[tile]]


def declared(count, kernels="2"):
    """Kernels of which only the program knows what they touch."""
    graph = Captured(list(range(int(count))) * 2, kernels=int(kernels))
    graph.capture()
    for _ in range(3):
        graph.launch()
    graph.check()
    print("OK")


def lies():
    """What tasks read besides what they say is at home only: those elsewhere fault."""
    graph = Captured(list(range(24)), place_bytes=8 * 2 * TILES)
    graph.regions = lambda tile: [Region(graph.address(tile).value, SIDE * 4, SIDE, PITCH, READS | WRITES)]
    graph.capture()
    codes = [graph.code("cuGraphLaunch", graph.exec, graph.streams[0])]
    codes += [graph.code("cuStreamSynchronize", stream) for stream in graph.streams]
    codes += [graph.code("cuMemAlloc_v2", ctypes.byref(ctypes.c_uint64()), ctypes.c_size_t(64))]
    if codes[1:] != [700] * 3:
        sys.exit(f"wrong errors: {codes}")
    print("OK")


def nonsense():
    """Declarations that make no sense: an error by name, or the task stays home; the words are right."""
    graph = Captured(list(range(12)))
    tile = graph.regions(0)[0]
    far = Region(2**64 - 64, 64, 2, 2**63, READS)
    found = [graph.begin([tile]), graph.library.tally_task_end(graph.streams[0])]  # outside of a capture: nothing
    graph.call("cuStreamBeginCapture_v2", graph.streams[0], 2)
    found += [graph.begin([far]), graph.begin([tile] * 65), graph.begin([Region(tile.address, 4, 1, 0, 9)]),
              graph.library.tally_task_end(graph.streams[0])]
    found += [graph.library.tally_task_begin(graph.streams[0], None, ctypes.c_size_t(10**6)), graph.begin([tile]),
              graph.begin([tile]), graph.library.tally_task_end(graph.streams[0])]
    is_wanted = os.environ.get("TALLY_GRAPHS") == "spread"  # else nobody keeps books
    if found != [0, 0, 22, 7, 22, 22 * is_wanted, 7, 0, 22 * is_wanted, 0]:
        sys.exit(f"wrong answers: {found}")
    odd = [[Region(64, 1 << 40, 1, 0, WRITES)],                               # nobody's memory
           [Region(tile.address, 64, 1 << 40, 1, READS | WRITES)],            # overlaps itself and leaves the allocation
           [Region(graph.matrices[0].value, MATRIX_BYTES, 1, 0, READS | WRITES)] * 16 +
           [Region(graph.places.value, 8 * TILES, 1, 0, READS)],
           [Region(tile.address, 0, 0, 0, READS)]]
    for number, regions in enumerate(odd):
        if graph.begin(regions) != 0:
            sys.exit(f"regions {number} are refused")
        if number == 2:
            graph.launch_hidden(3, 3)
        elif number != 3:
            graph.launch_hidden(number, number)
        if graph.library.tally_task_end(graph.streams[0]) != 0:
            sys.exit("a task's end is refused")
    graph.begin([tile])  # never ended
    graph.launch_hidden(5, 5)
    made, graph.exec = ctypes.c_void_p(), ctypes.c_void_p()
    graph.call("cuStreamEndCapture", graph.streams[0], ctypes.byref(made))
    graph.call("cuGraphInstantiateWithFlags", ctypes.byref(graph.exec), made, ctypes.c_ulonglong(0))
    for _ in range(2):
        graph.call("cuGraphLaunch", graph.exec, graph.streams[0])
        for tile in (0, 1, 3, 5):
            graph.expected[tile][:] = [(word * 9 + tile) & MASK for word in graph.expected[tile]]
    graph.check()
    print("OK")


def anew(shape):
    """Memory that is freed and had again is other memory, also at the same addresses: mirrors must not go on with what was there."""
    graph = Shaped(shape)
    for _ in range(3):
        for _ in range(2):
            graph.launch()
        graph.check()
        for matrix in graph.matrices:
            graph.call("cuMemFree_v2", matrix)
        if {graph.allocate(MATRIX_BYTES).value for _ in graph.matrices} != {matrix.value for matrix in graph.matrices}:
            sys.exit("the memory is elsewhere")
        for matrix in graph.matrices:
            graph.call("cuMemsetD32_v2", matrix, 1, ctypes.c_size_t(MATRIX_BYTES // 4))
        graph.call("cuCtxSynchronize")
        graph.expected = [[1] * (SIDE * SIDE) for _ in range(2 * TILES)]
    print("OK")


def forever(shape, rounds="100"):
    graph = Shaped(shape, int(rounds))
    print("launched", flush=True)
    while True:
        for _ in range(4):
            graph.launch()
        graph.check()


if __name__ == "__main__":
    {"shapes": shapes, "declared": declared, "lies": lies, "nonsense": nonsense, "anew": anew, "forever": forever}[sys.argv[1]](*sys.argv[2:])
