// The ways of issuing a step's launches. After each step the words that say what is near go to the host.
#pragma once

#include <map>
#include <memory>
#include <vector>

#include "bench/window/rigidsim/dependences.h"
#include "bench/window/rigidsim/simulation.cuh"

namespace rigidsim {

class Mode {
 public:
  // Where a step's near words arrive; a slot is used again so many steps later, when the host has read it.
  static constexpr size_t kSlots = 4;

  virtual ~Mode() = default;
  virtual void Issue(const StepList& list) = 0;
  // Behind what was issued.
  virtual void ReadNear(const Array<int>& near_chunks, size_t slot) = 0;
  virtual const std::vector<int>& AwaitNear(size_t slot) = 0;
  // All that was issued is complete.
  virtual void Finish() = 0;
};

inline size_t BytesOf(const Array<int>& a) {
  return sizeof(int) * static_cast<size_t>(a.rows) * static_cast<size_t>(a.columns);
}

struct CopyWords : Work {
  const int* from;
  int* to;
  CopyWords(Declared& d, const Buffers& b, const Array<int>& source, const Array<int>& target)
      : Work(b), from(d.Reads(source)), to(d.Writes(target)) {
    environments = source.rows * source.columns;
  }
  void operator()(int, int i) const { to[i] = from[i]; }
};

// The reference: no GPU. `shuffles`: in random orders that the declared segments allow, over several steps, so that a
// segment or a hazard which was forgotten shows in the bits.
class HostMode : public Mode {
 public:
  explicit HostMode(bool shuffles) : shuffles_(shuffles) {}
  void Issue(const StepList& list) override {
    for (const Launch& launch : list) Push(launch);
  }
  void ReadNear(const Array<int>& chunks, size_t slot) override {
    near_[slot].resize(BytesOf(chunks) / sizeof(int));
    Declared declared;
    const CopyWords work(declared, Buffers{}, chunks, Array<int>{near_[slot].data(), chunks.rows, chunks.columns});
    copies_[slot] = MakeLaunch("copy", nullptr, work, 1, declared);
    Push(copies_[slot]);
  }
  const std::vector<int>& AwaitNear(size_t slot) override {
    auto is_pending = [&] {
      return std::any_of(pending_.begin(), pending_.end(),
                         [&](const Pending& p) { return p.launch == &copies_[slot]; });
    };
    while (is_pending()) RunOne();
    return near_[slot];
  }
  void Finish() override {
    while (!pending_.empty()) RunOne();
  }

 private:
  struct Pending {
    const Launch* launch;
    int waits;  // for so many others
    bool is_slow;
  };
  void Push(const Launch& launch) {
    if (!shuffles_) return launch.on_host(launch);
    int waits = 0;
    for (const Pending& p : pending_) waits += HazardsBetween(p.launch->declared, launch.declared).Any();
    pending_.push_back({&launch, waits, random_.Next() % 4 == 0});
  }
  void RunOne() {
    // Some launches are slow and run when nothing else can; of the others the newest comes first. So what is held back
    // by too little gets far ahead of what it should wait for.
    std::vector<size_t> quick, slow;
    for (size_t i = 0; i < pending_.size(); ++i) {
      if (pending_[i].waits == 0) (pending_[i].is_slow ? slow : quick).push_back(i);
    }
    const size_t chosen = quick.empty() ? slow[random_.Next() % slow.size()] : quick.back();
    const Launch& launch = *pending_[chosen].launch;
    launch.on_host(launch);
    for (size_t i = chosen + 1; i < pending_.size(); ++i) {
      pending_[i].waits -= HazardsBetween(launch.declared, pending_[i].launch->declared).Any();
    }
    pending_.erase(pending_.begin() + static_cast<ptrdiff_t>(chosen));
  }

  const bool shuffles_;
  check::Random random_{1};
  std::vector<Pending> pending_;
  Launch copies_[kSlots];
  std::vector<int> near_[kSlots];
};

// ---- On a GPU.
inline void IssueTo(cudaStream_t stream, const Launch& launch) {
  void* parameters[] = {const_cast<char*>(launch.parameters)};
  CHECK_CUDA(cudaLaunchKernel(launch.function, launch.grid, dim3(Launch::kThreads), parameters, 0, stream));
}

// Page-locked words, one array per slot.
class NearSlots {
 public:
  ~NearSlots() {
    for (int* slot : pinned_) cudaFreeHost(slot);
  }
  int* Pinned(const Array<int>& chunks, size_t slot) {
    words_[slot].resize(BytesOf(chunks) / sizeof(int));
    if (pinned_[slot] == nullptr) CHECK_CUDA(cudaMallocHost(&pinned_[slot], BytesOf(chunks)));
    return pinned_[slot];
  }
  const std::vector<int>& Words(size_t slot) {
    std::copy_n(pinned_[slot], words_[slot].size(), words_[slot].begin());
    return words_[slot];
  }

 private:
  int* pinned_[Mode::kSlots] = {};
  std::vector<int> words_[Mode::kSlots];
};

// One stream, launch by launch: what any program does.
class SerialMode : public Mode {
 public:
  SerialMode() {
    CHECK_CUDA(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
    for (cudaEvent_t& event : arrived_) CHECK_CUDA(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
  }
  ~SerialMode() override {
    for (cudaEvent_t event : arrived_) cudaEventDestroy(event);
    cudaStreamDestroy(stream_);
  }
  void Issue(const StepList& list) override {
    for (const Launch& launch : list) IssueTo(stream_, launch);
  }
  void ReadNear(const Array<int>& chunks, size_t slot) override {
    int* const to = slots_.Pinned(chunks, slot);
    CHECK_CUDA(cudaMemcpyAsync(to, chunks.pointer, BytesOf(chunks), cudaMemcpyDeviceToHost, stream_));
    CHECK_CUDA(cudaEventRecord(arrived_[slot], stream_));
  }
  const std::vector<int>& AwaitNear(size_t slot) override {
    CHECK_CUDA(cudaEventSynchronize(arrived_[slot]));
    return slots_.Words(slot);
  }
  void Finish() override { CHECK_CUDA(cudaStreamSynchronize(stream_)); }

 protected:
  cudaStream_t stream_;

 private:
  cudaEvent_t arrived_[kSlots];
  NearSlots slots_;
};

// The same stream captured into a graph, which keeps its order: each list once, or (`each_step`) anew in each step.
class GraphMode : public SerialMode {
 public:
  explicit GraphMode(bool each_step) : each_step_(each_step) {}
  ~GraphMode() override {
    for (const auto& [list, graph] : graphs_) cudaGraphExecDestroy(graph);
  }
  void Issue(const StepList& list) override {
    cudaGraphExec_t& graph = graphs_[&list];
    if (graph == nullptr) graph = Capture(list);
    CHECK_CUDA(cudaGraphLaunch(graph, stream_));
    if (!each_step_) return;
    CHECK_CUDA(cudaGraphExecDestroy(graph));
    graphs_.clear();
  }

 private:
  cudaGraphExec_t Capture(const StepList& list) {
    cudaGraph_t graph;
    cudaGraphExec_t executable;
    CHECK_CUDA(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal));
    SerialMode::Issue(list);
    CHECK_CUDA(cudaStreamEndCapture(stream_, &graph));
    CHECK_CUDA(cudaGraphInstantiate(&executable, graph, 0));
    CHECK_CUDA(cudaGraphDestroy(graph));
    return executable;
  }

  const bool each_step_;
  std::map<const StepList*, cudaGraphExec_t> graphs_;
};

}  // namespace rigidsim
