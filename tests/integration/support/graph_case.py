"""Programs for graphs_test.py, to be run under tally-run: CUDA graphs of chains that a kernel joins, built node by node."""
import ctypes
import sys
import time

from cuda_driver import Cuda

WORDS = 32
MASK = 2**32 - 1

# words[tid] = words[tid] * factor + tid, after `rounds` of work; out[tid] += in[tid]; and one that writes to nowhere.
PTX = b"""
.version 7.0
.target sm_80
.address_size 64
.visible .entry advance(.param .u64 words, .param .u32 factor, .param .u32 rounds) {
  .reg .b32 %r<7>;
  .reg .b64 %d<3>;
  .reg .pred %p<2>;
  ld.param.u64 %d1, [words];
  ld.param.u32 %r1, [factor];
  ld.param.u32 %r4, [rounds];
  mov.u32 %r5, 0;
AGAIN:
  add.u32 %r5, %r5, 1;
  setp.lt.u32 %p1, %r5, %r4;
  @%p1 bra AGAIN;
  mov.u32 %r2, %tid.x;
  mad.wide.u32 %d2, %r2, 4, %d1;
  ld.global.u32 %r3, [%d2];
  mad.lo.u32 %r3, %r3, %r1, %r2;
  st.global.u32 [%d2], %r3;
  ret;
}
.visible .entry gather(.param .u64 out, .param .u64 in) {
  .reg .b32 %r<4>;
  .reg .b64 %d<5>;
  ld.param.u64 %d1, [out];
  ld.param.u64 %d2, [in];
  mov.u32 %r1, %tid.x;
  mad.wide.u32 %d3, %r1, 4, %d1;
  mad.wide.u32 %d4, %r1, 4, %d2;
  ld.global.u32 %r2, [%d3];
  ld.global.u32 %r3, [%d4];
  add.u32 %r2, %r2, %r3;
  st.global.u32 [%d3], %r2;
  ret;
}
.visible .entry stray(.param .u64 words) {
  .reg .b64 %d<2>;
  .reg .b32 %r<2>;
  mov.u64 %d1, 16;
  mov.u32 %r1, 1;
  st.global.u32 [%d1], %r1;
  ret;
}
\0"""


class KernelNode(ctypes.Structure):
    """CUDA_KERNEL_NODE_PARAMS_v2."""
    _fields_ = [("func", ctypes.c_void_p), ("grid", ctypes.c_uint * 3), ("block", ctypes.c_uint * 3),
                ("shared_bytes", ctypes.c_uint), ("parameters", ctypes.c_void_p), ("extra", ctypes.c_void_p),
                ("kern", ctypes.c_void_p), ("context", ctypes.c_void_p)]


class Graph(Cuda):
    """`chains` chains of `length` kernels, joined in the words of the first one at the end of each launch."""

    def __init__(self, chains, length, rounds=1):
        super().__init__()
        self.length, self.rounds = length, rounds
        module = ctypes.c_void_p()
        self.call("cuModuleLoadData", ctypes.byref(module), PTX)
        self.kernels = {}
        for name in (b"advance", b"gather", b"stray"):
            self.kernels[name.decode()] = ctypes.c_void_p()
            self.call("cuModuleGetFunction", ctypes.byref(self.kernels[name.decode()]), module, name)
        self.streams = [ctypes.c_void_p(), ctypes.c_void_p()]
        for stream in self.streams:
            self.call("cuStreamCreate", ctypes.byref(stream), 1)
        self.words = [self.allocate(WORDS * 4) for _ in range(chains)]
        for words in self.words:
            self.call("cuMemsetD32_v2", words, 1, ctypes.c_size_t(WORDS))
        self.call("cuCtxSynchronize")
        self.expected = [[1] * WORDS for _ in range(chains)]
        self.factors = [[3 + 2 * (chain + place) for place in range(length)] for chain in range(chains)]
        self.graph, self.nodes = self.build()
        self.exec = self.instantiate(self.graph)

    def parameters_of(self, kernel, *arguments):
        kept = (ctypes.c_void_p * len(arguments))(*(ctypes.addressof(argument) for argument in arguments))
        node = KernelNode(func=self.kernels[kernel].value, parameters=ctypes.cast(kept, ctypes.c_void_p).value)
        node.grid[:], node.block[:] = (1, 1, 1), (WORDS, 1, 1)
        node.keeps = (kept, arguments)
        return node

    def advance(self, chain, place):
        return self.parameters_of("advance", self.words[chain], ctypes.c_uint32(self.factors[chain][place]),
                                  ctypes.c_uint32(self.rounds))

    def add(self, graph, behind, parameters):
        node = ctypes.c_void_p()
        before = (ctypes.c_void_p * len(behind))(*(one.value for one in behind))
        self.call("cuGraphAddKernelNode_v2", ctypes.byref(node), graph, before, ctypes.c_size_t(len(behind)),
                  ctypes.byref(parameters))
        return node

    def build(self):
        graph = ctypes.c_void_p()
        self.call("cuGraphCreate", ctypes.byref(graph), 0)
        nodes = []
        for chain in range(len(self.words)):
            nodes.append([])
            for place in range(self.length):
                nodes[-1].append(self.add(graph, nodes[-1][-1:], self.advance(chain, place)))
        last = nodes[0][-1]
        for chain in range(1, len(self.words)):
            last = self.add(graph, [last, nodes[chain][-1]],
                            self.parameters_of("gather", self.words[0], self.words[chain]))
        self.last = last
        return graph, nodes

    def instantiate(self, graph):
        made = ctypes.c_void_p()
        self.call("cuGraphInstantiateWithFlags", ctypes.byref(made), graph, ctypes.c_ulonglong(0))
        return made

    def launch(self, stream=0):
        self.call("cuGraphLaunch", self.exec, self.streams[stream])
        for words, factors in zip(self.expected, self.factors):
            for factor in factors:
                words[:] = [(word * factor + i) & MASK for i, word in enumerate(words)]
        for words in self.expected[1:]:
            self.expected[0][:] = [(word + other) & MASK for word, other in zip(self.expected[0], words)]

    def check(self):
        for stream in self.streams:
            self.call("cuStreamSynchronize", stream)
        for words, expected in zip(self.words, self.expected):
            found = (ctypes.c_uint32 * WORDS)()
            self.call("cuMemcpyDtoH_v2", ctypes.byref(found), words, ctypes.c_size_t(WORDS * 4))
            if list(found) != expected:
                sys.exit("wrong words")


def launches(chains, length, count, rounds="1"):
    """So many, all of them before the first is waited for, on two streams in turns; right at the end."""
    graph = Graph(int(chains), int(length), int(rounds))
    for number in range(int(count)):
        graph.launch(number // 3 % 2)
    graph.check()
    print("OK")


def updates(chains, length, count):
    """Between launches a node of the executable is set, or all of it is updated."""
    graph = Graph(int(chains), int(length))
    for number in range(int(count)):
        graph.launch()
        chain, place = number % len(graph.words), number % graph.length
        graph.factors[chain][place] += 2
        if number % 4 == 3:
            other, _ = graph.build()
            info = (ctypes.c_void_p * 3)()
            graph.call("cuGraphExecUpdate_v2", graph.exec, other, ctypes.byref(info))
            graph.call("cuGraphDestroy", other)
        else:
            graph.call("cuGraphExecKernelNodeSetParams_v2", graph.exec, graph.nodes[chain][place],
                       ctypes.byref(graph.advance(chain, place)))
        if number % 5 == 4:
            graph.check()
    graph.check()
    print("OK")


def gone_in_flight(chains, length, count):
    """The executable is destroyed right behind its launch, memory is freed, and another graph made where they were."""
    graph = Graph(int(chains), int(length), rounds=200)
    for number in range(int(count)):
        graph.launch()  # on one stream: what is launched of different executables is ordered by nothing else
        graph.call("cuGraphExecDestroy", graph.exec)
        graph.exec = graph.instantiate(graph.graph)
        if number % 3 == 2:
            graph.check()
            graph.launch()
            for words in graph.words:
                graph.call("cuMemFree_v2", words)  # waits for what is in flight
            graph = Graph(int(chains), int(length), rounds=200)
    graph.check()
    print("OK")


def faults(chains, length):
    """The last node but some writes to nowhere: CUDA's error, and nothing hangs."""
    graph = Graph(int(chains), int(length))
    made, nodes = graph.build()
    graph.add(made, [nodes[0][0]], graph.parameters_of("stray", graph.words[0]))
    graph.exec = graph.instantiate(made)
    codes = [graph.code("cuGraphLaunch", graph.exec, graph.streams[0])]
    codes += [graph.code("cuStreamSynchronize", stream) for stream in graph.streams]
    if 700 not in codes:
        sys.exit(f"no error: {codes}")
    print("OK")


def reset(chains, length, count):
    """The device is reset between graphs, also while one runs."""
    for number in range(int(count)):
        graph = Graph(int(chains), int(length), rounds=100)
        graph.launch()
        if number % 2 == 0:
            graph.check()
        graph.call("cuDevicePrimaryCtxReset_v2", 0)
    graph = Graph(int(chains), int(length))
    graph.launch()
    graph.check()
    print("OK")


def forever(chains, length, rounds="100"):
    """Launched without end, checked now and then; says when it has begun."""
    graph = Graph(int(chains), int(length), int(rounds))
    print("launched", flush=True)
    while True:
        for _ in range(4):
            graph.launch()
        graph.check()
        time.sleep(0.001)


if __name__ == "__main__":
    {"launches": launches, "updates": updates, "gone_in_flight": gone_in_flight, "faults": faults, "reset": reset,
     "forever": forever}[sys.argv[1]](*sys.argv[2:])
