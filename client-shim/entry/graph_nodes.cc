#include "client-shim/entry/graph_nodes.h"

#include <cstring>
#include <memory>
#include <utility>

#include "client-shim/entry/capture_staging.h"
#include "client-shim/entry/copy_plan.h"
#include "client-shim/entry/graph_record.h"
#include "client-shim/entry/guard.h"
#include "client-shim/entry/launch_record.h"
#include "client-shim/state/callback_thread.h"
#include "client-shim/state/process.h"
#include "client-shim/state/refusals.h"

namespace tally::client_shim {
namespace {

// The launch that a node makes, in its record behind what names the node.
class KernelNode {
 public:
  explicit KernelNode(const CUDA_KERNEL_NODE_PARAMS_v2& p) : p_(p) {
    config_.gridDimX = p.gridDimX;
    config_.gridDimY = p.gridDimY;
    config_.gridDimZ = p.gridDimZ;
    config_.blockDimX = p.blockDimX;
    config_.blockDimY = p.blockDimY;
    config_.blockDimZ = p.blockDimZ;
    config_.sharedMemBytes = p.sharedMemBytes;
  }
  CUresult Describe(const Call& call) {
    const CUfunction function = p_.func != nullptr ? p_.func : reinterpret_cast<CUfunction>(p_.kern);
    return DescribeLaunch(*call.process, function, config_, p_.kernelParams, p_.extra, 0, &launch_, &kernel_);
  }
  size_t record_bytes() const { return sizeof(launch_) + LaunchTailBytes(launch_); }
  void Write(std::byte* out) const { WriteLaunch(launch_, *kernel_, config_, p_.kernelParams, p_.extra, out); }

 private:
  const CUDA_KERNEL_NODE_PARAMS_v2& p_;
  CUlaunchConfig config_{};
  shm::Launch launch_{};
  const Kernel* kernel_ = nullptr;
};

CUresult DescribeFill(const Call& call, const CUDA_MEMSET_NODE_PARAMS& p, shm::Fill* fill) {
  if (p.elementSize != 1 && p.elementSize != 2 && p.elementSize != 4) return CUDA_ERROR_INVALID_VALUE;
  if (p.width == 0 || p.height == 0) return CUDA_ERROR_INVALID_VALUE;
  const uint64_t row_bytes = uint64_t{p.width} * p.elementSize;
  if (p.height > 1 && p.pitch < row_bytes) return CUDA_ERROR_INVALID_VALUE;
  const uint64_t extent = (p.height - 1) * p.pitch + row_bytes;
  const auto allocation = call.process->addresses.Find(p.dst);
  if (!allocation || !call.process->addresses.Covers(p.dst, extent)) return CUDA_ERROR_INVALID_VALUE;
  *fill = {
      allocation->DeviceAddressOf(p.dst), p.height > 1 ? p.pitch : 0, p.width, p.height, 0, p.value, p.elementSize};
  return CUDA_SUCCESS;
}

CUresult AddCallbackNode(const Call& call, const NodePlace& place, std::unique_ptr<Callback> callback) {
  if (const CUresult result = call.process->callback_thread.Ensure(); result != CUDA_SUCCESS) return result;
  const shm::LaunchHostFunction request{0, TokenOf(callback.get()), 0, 0};
  std::byte* tail = nullptr;
  if (const CUresult result = BeginAdd(call, shm::Op::kAddHostNode, place, sizeof(request), &tail);
      result != CUDA_SUCCESS)
    return result;
  std::memcpy(tail, &request, sizeof(request));
  const CUresult result = FinishAdd(call, place);
  if (result == CUDA_SUCCESS) callback.release();  // the graph may run it any number of times
  return result;
}

// A copy node's pageable side, if it has one that a host node can serve: bytes in one piece.
struct PageableSide {
  bool is_source;
  void* address;
  size_t size_bytes;
};
bool FindPageable(const Process& process, const CUDA_MEMCPY3D& c, PageableSide* side) {
  const auto is_pageable = [&](CUmemorytype type, const void* host) {
    return type == CU_MEMORYTYPE_HOST && host != nullptr && !process.addresses.Find(Word(host));
  };
  const bool from = is_pageable(c.srcMemoryType, c.srcHost);
  const bool to = is_pageable(c.dstMemoryType, c.dstHost);
  const bool is_one_row = c.Height == 1 && c.Depth == 1;
  const size_t offset = from ? c.srcXInBytes : c.dstXInBytes;
  const bool is_at_start = from ? c.srcY == 0 && c.srcZ == 0 : c.dstY == 0 && c.dstZ == 0;
  if (from == to || !is_one_row || !is_at_start || c.WidthInBytes == 0) return false;
  *side = {from,
           (from ? static_cast<std::byte*>(const_cast<void*>(c.srcHost)) : static_cast<std::byte*>(c.dstHost)) + offset,
           c.WidthInBytes};
  return true;
}

CUresult AddPlainCopyNode(const Call& call, const NodePlace& place, const CUDA_MEMCPY3D& copy) {
  shm::CopyBox box;
  if (const CUresult result = DescribeBox(*call.process, copy, &box); result != CUDA_SUCCESS) return result;
  std::byte* tail = nullptr;
  if (const CUresult result = BeginAdd(call, shm::Op::kAddCopyNode, place, sizeof(box), &tail); result != CUDA_SUCCESS)
    return result;
  std::memcpy(tail, &box, sizeof(box));
  return FinishAdd(call, place);
}

// Pageable bytes: a pinned buffer between, and a host node that fills it before, or empties it after, the copy.
CUresult AddStagedCopyNode(const Call& call, const NodePlace& place, const CUDA_MEMCPY3D& copy,
                           const PageableSide& side) {
  void* staging = nullptr;
  if (const CUresult result = AllocateStaging(call, side.size_bytes, &staging); result != CUDA_SUCCESS) return result;
  Allocation known;  // so that the copy node's address is found
  known.address = Word(staging);
  known.size_bytes = side.size_bytes;
  known.kind = MemoryKind::kPinned;
  known.device = call.process->current_device();
  known.context = t_thread.context;
  call.process->addresses.Insert(known);
  CUDA_MEMCPY3D staged = copy;
  auto callback = std::make_unique<Callback>();
  callback->size_bytes = side.size_bytes;
  callback->destination = side.is_source ? staging : side.address;
  callback->source = side.is_source ? side.address : staging;
  CUgraphNode first = nullptr;
  if (side.is_source) {
    staged.srcHost = staging;
    staged.srcXInBytes = 0;
    staged.srcPitch = 0;
    staged.srcHeight = 0;
    const NodePlace before{&first, place.graph, place.dependencies, place.num_dependencies};
    if (const CUresult result = AddCallbackNode(call, before, std::move(callback)); result != CUDA_SUCCESS)
      return result;
    return AddPlainCopyNode(call, {place.node, place.graph, &first, 1}, staged);
  }
  staged.dstHost = staging;
  staged.dstXInBytes = 0;
  staged.dstPitch = 0;
  staged.dstHeight = 0;
  if (const CUresult result =
          AddPlainCopyNode(call, {&first, place.graph, place.dependencies, place.num_dependencies}, staged);
      result != CUDA_SUCCESS)
    return result;
  return AddCallbackNode(call, {place.node, place.graph, &first, 1}, std::move(callback));
}

}  // namespace

CUresult AddKernelNode(const NodePlace& place, const CUDA_KERNEL_NODE_PARAMS_v2& parameters) {
  Call call;
  if (const CUresult result = BeginCallInContext(&call); result != CUDA_SUCCESS) return result;
  if (const CUresult result = CheckPlace(place); result != CUDA_SUCCESS) return result;
  KernelNode kernel(parameters);
  if (const CUresult result = kernel.Describe(call); result != CUDA_SUCCESS) return result;
  std::byte* tail = nullptr;
  if (const CUresult result = BeginAdd(call, shm::Op::kAddKernelNode, place, kernel.record_bytes(), &tail);
      result != CUDA_SUCCESS)
    return result;
  kernel.Write(tail);
  return FinishAdd(call, place);
}

CUresult AddCopyNode(const NodePlace& place, const CUDA_MEMCPY3D& copy) {
  Call call;
  if (const CUresult result = BeginCallInContext(&call); result != CUDA_SUCCESS) return result;
  if (const CUresult result = CheckPlace(place); result != CUDA_SUCCESS) return result;
  PageableSide side{};
  const bool is_staged = FindPageable(*call.process, copy, &side);
  if (is_staged && place.has_later_edges) return RefuseUse("cuGraphAddNode_v2: edges with data to pageable copies");
  const CUresult result = is_staged ? AddStagedCopyNode(call, place, copy, side) : AddPlainCopyNode(call, place, copy);
  if (result == CUDA_SUCCESS) call.process->node_parameters.Keep(Word(*place.node), copy);
  return result;
}

CUresult AddFillNode(const NodePlace& place, const CUDA_MEMSET_NODE_PARAMS& parameters) {
  Call call;
  if (const CUresult result = BeginCallInContext(&call); result != CUDA_SUCCESS) return result;
  if (const CUresult result = CheckPlace(place); result != CUDA_SUCCESS) return result;
  shm::Fill fill;
  if (const CUresult result = DescribeFill(call, parameters, &fill); result != CUDA_SUCCESS) return result;
  std::byte* tail = nullptr;
  if (const CUresult result = BeginAdd(call, shm::Op::kAddFillNode, place, sizeof(fill), &tail); result != CUDA_SUCCESS)
    return result;
  std::memcpy(tail, &fill, sizeof(fill));
  const CUresult result = FinishAdd(call, place);
  if (result == CUDA_SUCCESS) call.process->node_parameters.Keep(Word(*place.node), parameters);
  return result;
}

CUresult AddHostNode(const NodePlace& place, const CUDA_HOST_NODE_PARAMS& host) {
  Call call;
  if (const CUresult result = BeginCallInContext(&call); result != CUDA_SUCCESS) return result;
  if (const CUresult result = CheckPlace(place); result != CUDA_SUCCESS) return result;
  if (host.fn == nullptr) return CUDA_ERROR_INVALID_VALUE;
  auto callback = std::make_unique<Callback>();
  callback->function = host.fn;
  callback->user = host.userData;
  const CUresult result = AddCallbackNode(call, place, std::move(callback));
  if (result == CUDA_SUCCESS) call.process->node_parameters.Keep(Word(*place.node), host);
  return result;
}

CUresult SetKernelNode(CUgraphExec exec, CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS_v2& parameters) {
  Call call;
  if (const CUresult result = BeginCallInContext(&call); result != CUDA_SUCCESS) return result;
  KernelNode kernel(parameters);
  if (const CUresult result = kernel.Describe(call); result != CUDA_SUCCESS) return result;
  std::byte* tail = nullptr;
  if (const CUresult result = BeginSet(call, shm::Op::kSetKernelNode, exec, node, kernel.record_bytes(), &tail);
      result != CUDA_SUCCESS)
    return result;
  kernel.Write(tail);
  return call.channel->Call().result;
}

CUresult SetCopyNode(CUgraphExec exec, CUgraphNode node, const CUDA_MEMCPY3D& copy) {
  Call call;
  if (const CUresult result = BeginCallInContext(&call); result != CUDA_SUCCESS) return result;
  shm::CopyBox box;
  if (const CUresult result = DescribeBox(*call.process, copy, &box); result != CUDA_SUCCESS) return result;
  std::byte* tail = nullptr;
  if (const CUresult result = BeginSet(call, shm::Op::kSetCopyNode, exec, node, sizeof(box), &tail);
      result != CUDA_SUCCESS)
    return result;
  std::memcpy(tail, &box, sizeof(box));
  const CUresult result = call.channel->Call().result;
  if (result == CUDA_SUCCESS && exec == nullptr) call.process->node_parameters.Keep(Word(node), copy);
  return result;
}

CUresult SetFillNode(CUgraphExec exec, CUgraphNode node, const CUDA_MEMSET_NODE_PARAMS& parameters) {
  Call call;
  if (const CUresult result = BeginCallInContext(&call); result != CUDA_SUCCESS) return result;
  shm::Fill fill;
  if (const CUresult result = DescribeFill(call, parameters, &fill); result != CUDA_SUCCESS) return result;
  std::byte* tail = nullptr;
  if (const CUresult result = BeginSet(call, shm::Op::kSetFillNode, exec, node, sizeof(fill), &tail);
      result != CUDA_SUCCESS)
    return result;
  std::memcpy(tail, &fill, sizeof(fill));
  const CUresult result = call.channel->Call().result;
  if (result == CUDA_SUCCESS && exec == nullptr) call.process->node_parameters.Keep(Word(node), parameters);
  return result;
}

CUresult SetHostNode(CUgraphExec exec, CUgraphNode node, const CUDA_HOST_NODE_PARAMS& host) {
  Call call;
  if (const CUresult result = BeginCallInContext(&call); result != CUDA_SUCCESS) return result;
  if (host.fn == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult result = call.process->callback_thread.Ensure(); result != CUDA_SUCCESS) return result;
  auto callback = std::make_unique<Callback>();
  callback->function = host.fn;
  callback->user = host.userData;
  const shm::LaunchHostFunction request{0, TokenOf(callback.get()), 0, 0};
  std::byte* tail = nullptr;
  if (const CUresult result = BeginSet(call, shm::Op::kSetHostNode, exec, node, sizeof(request), &tail);
      result != CUDA_SUCCESS)
    return result;
  std::memcpy(tail, &request, sizeof(request));
  const CUresult result = call.channel->Call().result;
  if (result != CUDA_SUCCESS) return result;
  callback.release();
  if (exec == nullptr) call.process->node_parameters.Keep(Word(node), host);
  return CUDA_SUCCESS;
}

}  // namespace tally::client_shim
