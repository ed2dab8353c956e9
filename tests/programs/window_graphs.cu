// Graphs that one stream was captured into, launched again and again: each node comes behind the one before, whether it
// needs it or not. Chains of kernels over several arrays that meet now and then, a copy and a fill among them; nodes
// that the program changes, executables that it updates, two streams that take turns, and memory that is freed and
// given out again while the graph still names it.
#include "tests/programs/either_side.h"

using check::Results;
using check::Side;
using check::Where;

namespace {

constexpr int kArrays = 8, kCount = 600, kRounds = 6;

struct Advance {
  ONE_SIDED static void At(int i, uint32_t* words, uint32_t k) { words[i] = words[i] * (2 * k + 3) + 5 * i + k; }
};
struct Join {
  ONE_SIDED static void At(int i, uint32_t* out, const uint32_t* a, const uint32_t* b) { out[i] = a[i] * 7 + b[i]; }
};
// Reads what lies before and behind: a part of the next array's slice, where they are one allocation.
struct Smooth {
  ONE_SIDED static void At(int i, uint32_t* out, const uint32_t* in) { out[i] += in[i - 1] ^ in[i + 1]; }
};

// What is captured, or carried out on the host each time.
class Step {
 public:
  Step(Side& side, uint32_t* words) : side_(side), words_(words) {}

  uint32_t* Array(int i) const { return words_ + i * kCount; }
  void Play(cudaStream_t stream, uint32_t first) const {
    side_.Run<Advance>(stream, kCount, Array(0), first);  // the first node: its number changes
    for (int round = 0; round < kRounds; ++round) {
      for (int i = 0; i < kArrays - 2; ++i) side_.Run<Advance>(stream, kCount, Array(i), uint32_t(round + i));
      const int at = round % (kArrays - 3);
      side_.Run<Join>(stream, kCount, Array(kArrays - 2), Array(at), Array(at + 1));
      side_.Run<Smooth>(stream, kCount - 2, Array(at) + 1, Array(kArrays - 2) + 1);
      if (round == 2) side_.Copy(stream, Array(kArrays - 1), Array(at), kCount);
      if (round == 4) side_.Fill(stream, Array(at + 2) + 100, 0x21, 200);
    }
  }

 private:
  Side& side_;
  uint32_t* words_;
};

cudaGraph_t Capture(const Step& step, cudaStream_t stream, uint32_t first) {
  cudaGraph_t graph;
  CHECK_CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  step.Play(stream, first);
  CHECK_CUDA(cudaStreamEndCapture(stream, &graph));
  return graph;
}

cudaGraphNode_t FirstOf(cudaGraph_t graph) {
  cudaGraphNode_t first;
  size_t count = 1;
  CHECK_CUDA(cudaGraphGetRootNodes(graph, &first, &count));
  return first;
}

// One executable, however it is changed.
class Executable {
 public:
  Executable(Side& side, const Step& step, cudaStream_t stream) : side_(side), step_(step) {
    if (!side.is_device()) return;
    graph_ = Capture(step, stream, first_);
    CHECK_CUDA(cudaGraphInstantiate(&executable_, graph_, 0));
  }
  ~Executable() {
    if (!side_.is_device()) return;
    CHECK_CUDA(cudaGraphExecDestroy(executable_));
    CHECK_CUDA(cudaGraphDestroy(graph_));
  }
  void Launch(cudaStream_t stream) {
    if (side_.is_device()) CHECK_CUDA(cudaGraphLaunch(executable_, stream));
    if (!side_.is_device()) step_.Play(stream, first_);
  }
  void ChangeNode(uint32_t first) {
    first_ = first;
    if (!side_.is_device()) return;
    cudaKernelNodeParams parameters;
    CHECK_CUDA(cudaGraphKernelNodeGetParams(FirstOf(graph_), &parameters));
    int count = kCount;
    uint32_t* words = step_.Array(0);
    void* pointers[] = {&count, &words, &first_};
    parameters.kernelParams = pointers;
    CHECK_CUDA(cudaGraphExecKernelNodeSetParams(executable_, FirstOf(graph_), &parameters));
  }
  void Update(cudaStream_t stream, uint32_t first) {
    first_ = first;
    if (!side_.is_device()) return;
    CHECK_CUDA(cudaGraphDestroy(graph_));
    graph_ = Capture(step_, stream, first);
    cudaGraphExecUpdateResultInfo result;
    CHECK_CUDA(cudaGraphExecUpdate(executable_, graph_, &result));
  }

 private:
  Side& side_;
  const Step step_;
  uint32_t first_ = 1;
  cudaGraph_t graph_ = nullptr;
  cudaGraphExec_t executable_ = nullptr;
};

void Play(Where where, Results& results) {
  Side side(where);
  cudaStream_t stream = nullptr, other = nullptr;
  cudaEvent_t event = nullptr;
  if (side.is_device()) {
    CHECK_CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    CHECK_CUDA(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking));
    CHECK_CUDA(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
  }
  uint32_t* const words = side.New(check::RandomIntegers<uint32_t>(kArrays * kCount, 1));
  const Step step(side, words);
  const auto show = [&](const char* name) { side.Show(results, name, stream, words, kArrays * kCount); };

  {
    Executable plain(side, step, stream);
    for (int i = 0; i < 20; ++i) plain.Launch(stream);
    show("launched again");
    for (uint32_t i = 0; i < 20; ++i) {
      // In flight.
      if (i % 5 == 3) plain.ChangeNode(i);
      plain.Launch(stream);
    }
    show("a node changed");
  }
  {
    Executable updated(side, step, stream);
    for (uint32_t i = 0; i < 20; ++i) {
      if (i % 6 == 4) updated.Update(stream, i);
      updated.Launch(stream);
    }
    show("updated");
  }
  {
    // Launches of one executable do not overlap, on whatever streams. What else is on them is ordered by the program.
    Executable turns(side, step, stream);
    for (uint32_t i = 0; i < 12; ++i) {
      if (i == 7) turns.ChangeNode(99);
      turns.Launch(i % 2 == 0 ? stream : other);
    }
    if (side.is_device()) {
      CHECK_CUDA(cudaEventRecord(event, other));
      CHECK_CUDA(cudaStreamWaitEvent(stream, event, 0));
    }
    show("streams take turns");
  }
  {
    // Kernels launched one by one around the graph.
    Executable among(side, step, stream);
    for (uint32_t i = 0; i < 20; ++i) {
      side.Run<Advance>(stream, kCount, step.Array(int(i % kArrays)), i);
      among.Launch(stream);
      side.Run<Join>(stream, kCount, step.Array(kArrays - 1), step.Array(0), step.Array(1));
    }
    show("among launches");
  }
  if (side.is_device()) {
    CHECK_CUDA(cudaEventDestroy(event));
    CHECK_CUDA(cudaStreamDestroy(other));
  }
  {
    // Memory is allocated and freed between launches; the graph's own stays.
    Executable beside(side, step, stream);
    for (uint32_t i = 0; i < 20; ++i) {
      uint32_t* const more = side.New(check::RandomIntegers<uint32_t>(500, i));
      beside.Launch(stream);
      side.Run<Join>(stream, 500, step.Array(int(i) % kArrays), more, step.Array(2));
      if (side.is_device()) CHECK_CUDA(cudaStreamSynchronize(stream));
      side.Free(more);
    }
    show("beside other memory");
  }
  if (side.is_device()) CHECK_CUDA(cudaStreamDestroy(stream));
}

void Reference(Results& results) { Play(Where::kHost, results); }
void Device(Results& results) { Play(Where::kDevice, results); }

}  // namespace

int main(int argc, char** argv) { return check::RunProgram(argc, argv, Reference, Device); }
