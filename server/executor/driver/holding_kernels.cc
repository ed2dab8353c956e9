#include "server/executor/driver/holding_kernels.h"

#include <algorithm>
#include <cstddef>
#include <new>

namespace tally::server {
namespace {

// Held for a time: long enough that launching the next takes less, short enough that some always queue.
constexpr std::chrono::nanoseconds kEach = std::chrono::microseconds(50);
constexpr int64_t kMostKernels = 48;

constexpr const char* kHoldingPtx = R"(.version 6.3
.target sm_70
.address_size 64
.visible .entry tally_hold(.param .u64 released, .param .u64 num_ended, .param .u64 orders) {
  .reg .pred %p<2>;
  .reg .b32 %r<6>;
  .reg .b64 %d<8>;
  mov.u64 %d3, %globaltimer;
  ld.param.u64 %d0, [released];
  ld.param.u64 %d1, [num_ended];
  ld.param.u64 %d5, [orders];
  ld.volatile.global.u32 %r4, [%d1];
  and.b32 %r5, %r4, 127;
  mul.wide.u32 %d6, %r5, 16;
  add.u64 %d7, %d5, %d6;
  ld.volatile.global.u64 %d2, [%d7];
  ld.volatile.global.u32 %r0, [%d7 + 8];
again:
  ld.volatile.global.u32 %r1, [%d0];
  sub.u32 %r2, %r1, %r0;
  setp.ge.s32 %p0, %r2, 0;
  @%p0 bra done;
  nanosleep.u32 200;
  mov.u64 %d4, %globaltimer;
  sub.u64 %d4, %d4, %d3;
  setp.lt.u64 %p1, %d4, %d2;
  @%p1 bra again;
done:
  add.u32 %r3, %r4, 1;
  st.volatile.global.u32 [%d1], %r3;
  ret;
}
)";

}  // namespace

HoldingKernels::~HoldingKernels() {
  Release();
  if (stream_ != nullptr) {
    driver_.cuStreamSynchronize(stream_);
    driver_.cuStreamDestroy_v2(stream_);
  }
  if (graph_ != nullptr) driver_.cuGraphExecDestroy(graph_);
  if (module_ != nullptr) driver_.cuModuleUnload(module_);
  if (words_ != nullptr) driver_.cuMemFreeHost(words_);
}

CUresult HoldingKernels::Load() {
  if (driver_.cuMemHostAlloc == nullptr || driver_.cuMemFreeHost == nullptr ||
      driver_.cuMemHostGetDevicePointer_v2 == nullptr || driver_.cuGraphAddKernelNode_v2 == nullptr ||
      driver_.cuGraphInstantiateWithFlags == nullptr) {
    return failed_ = CUDA_ERROR_NOT_SUPPORTED;
  }
  void* memory = nullptr;
  failed_ = driver_.cuMemHostAlloc(&memory, sizeof(Words), CU_MEMHOSTALLOC_DEVICEMAP);
  if (failed_ != CUDA_SUCCESS) return failed_;
  words_ = new (memory) Words;
  failed_ = driver_.cuMemHostGetDevicePointer_v2(&words_address_, memory, 0);
  if (failed_ == CUDA_SUCCESS) failed_ = driver_.cuModuleLoadData(&module_, kHoldingPtx);
  if (failed_ == CUDA_SUCCESS) failed_ = driver_.cuModuleGetFunction(&function_, module_, "tally_hold");
  // The first launch would else load it, and wait for the context then.
  if (failed_ == CUDA_SUCCESS && driver_.cuFuncLoad != nullptr) failed_ = driver_.cuFuncLoad(function_);
  if (failed_ == CUDA_SUCCESS) failed_ = MakeGraph();
  // The lowest priority: a kernel of the service goes first.
  if (failed_ == CUDA_SUCCESS) failed_ = driver_.cuStreamCreateWithPriority(&stream_, CU_STREAM_NON_BLOCKING, 0);
  return failed_;
}

CUresult HoldingKernels::MakeGraph() {
  CUdeviceptr released = words_address_ + offsetof(Words, released);
  CUdeviceptr num_ended = words_address_ + offsetof(Words, num_ended);
  CUdeviceptr orders = words_address_ + offsetof(Words, orders);
  void* parameters[] = {&released, &num_ended, &orders};
  CUDA_KERNEL_NODE_PARAMS kernel{};
  kernel.func = function_;
  kernel.gridDimX = kernel.gridDimY = kernel.gridDimZ = 1;
  kernel.blockDimX = kernel.blockDimY = kernel.blockDimZ = 1;
  kernel.kernelParams = parameters;
  CUgraph graph = nullptr;
  CUresult result = driver_.cuGraphCreate(&graph, 0);
  if (result != CUDA_SUCCESS) return result;
  CUgraphNode node = nullptr;
  result = driver_.cuGraphAddKernelNode_v2(&node, graph, nullptr, 0, &kernel);
  if (result == CUDA_SUCCESS) result = driver_.cuGraphInstantiateWithFlags(&graph_, graph, 0);
  driver_.cuGraphDestroy(graph);
  return result;
}

CUresult HoldingKernels::Keep(const Queue& queue) {
  if (failed_ != CUDA_SUCCESS) return failed_;
  uint32_t num_queued = num_left();
  uint32_t ticket = ticket_.load(std::memory_order_relaxed);
  if (!is_holding()) {
    num_queued = 0;  // what is left ends at once
    ticket_.store(++ticket, std::memory_order_relaxed);
  }
  const uint32_t num_wanted = queue.num_kernels - std::min(num_queued, queue.num_kernels);
  const uint32_t last = num_launched_ + std::min(num_wanted, kNumOrders - num_left());
  for (; num_launched_ != last; ++num_launched_) {
    words_->orders[num_launched_ % kNumOrders] = {static_cast<uint64_t>(queue.each.count()), ticket, 0};
    failed_ = driver_.cuGraphLaunch(graph_, stream_);
    if (failed_ != CUDA_SUCCESS) break;
  }
  return failed_;
}

CUresult HoldingKernels::Hold(std::chrono::nanoseconds duration) {
  Release();
  const int64_t num_kernels = std::clamp<int64_t>((duration + kEach).count() / kEach.count(), 2, kMostKernels);
  return Keep({static_cast<uint32_t>(num_kernels), duration / num_kernels + std::chrono::nanoseconds(1)});
}

}  // namespace tally::server
