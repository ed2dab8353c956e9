#include "sim-driver/engine/frames.h"

#include <algorithm>
#include <cstring>

#include "sim-driver/engine/grid.h"

namespace tally::sim_driver {
namespace {

constexpr uint32_t kMaxDepth = 4096;
constexpr size_t kMaxFrameBytes = 64u << 20;  // of one warp's chain of calls, so that recursion cannot eat the host

}  // namespace

Frame* EnterFrame(Warp& w, const FunctionCode& function, Frame* parent, uint32_t lanes) {
  uint32_t depth = parent == nullptr ? 0 : parent->depth + 1;
  // Local addresses start at 16, so that none is null.
  uint32_t local_base = parent == nullptr ? 16 : (parent->local_top + 15) / 16 * 16;
  if (depth > kMaxDepth || uint64_t{local_base} + function.local_bytes > w.block->cluster->local_stride_bytes)
    return nullptr;
  size_t parameters = size_t{function.parameter_stride_bytes} * kLanes;
  size_t bytes = function.frame_bytes + parameters + 64;
  if (depth * bytes > kMaxFrameBytes) return nullptr;
  std::unique_ptr<Frame> frame;
  for (size_t k = w.free_frames.size(); k-- > 0;) {
    if (w.free_frames[k]->storage_bytes < bytes) continue;
    frame = std::move(w.free_frames[k]);
    w.free_frames.erase(w.free_frames.begin() + static_cast<ptrdiff_t>(k));
    break;
  }
  if (!frame) {
    frame = std::make_unique<Frame>();
    frame->storage_bytes = bytes;
    frame->storage = std::make_unique_for_overwrite<std::byte[]>(bytes);
  }
  auto start = (reinterpret_cast<uintptr_t>(frame->storage.get()) + 63) & ~uintptr_t{63};
  frame->registers = reinterpret_cast<std::byte*>(start);
  frame->parameters = frame->registers + function.frame_bytes;
  std::memset(frame->registers, 0, function.frame_bytes + parameters);
  frame->parent = parent;
  frame->function = &function;
  frame->call_record = nullptr;
  frame->call = nullptr;
  frame->local_base = local_base;
  frame->local_top = local_base + function.local_bytes;
  frame->live = lanes;
  frame->depth = depth;
  w.frames.push_back(std::move(frame));
  return w.frames.back().get();
}

void ReleaseFrame(Warp& w, Frame* frame) {
  for (size_t k = w.frames.size(); k-- > 0;) {
    if (w.frames[k].get() != frame) continue;
    w.free_frames.push_back(std::move(w.frames[k]));
    w.frames.erase(w.frames.begin() + static_cast<ptrdiff_t>(k));
    return;
  }
}

void CopyReturnValues(Warp&, Frame* frame, uint32_t lanes) {
  // The caller's list: for each return value, where it goes in its parameter area.
  const FunctionCode& function = *frame->function;
  Frame* caller = frame->parent;
  for (size_t k = 0; k < function.returns.size() && k < frame->call->x; ++k) {
    uint32_t to = frame->call->list[2 * k];
    uint32_t bytes = std::min(frame->call->list[2 * k + 1], function.returns[k].size_bytes);
    for (uint32_t rest = lanes; rest != 0; rest &= rest - 1) {
      auto lane = static_cast<size_t>(std::countr_zero(rest));
      std::memcpy(caller->parameters + lane * caller->function->parameter_stride_bytes + to,
                  frame->parameters + lane * function.parameter_stride_bytes + function.returns[k].offset_bytes, bytes);
    }
  }
}

}  // namespace tally::sim_driver
