#include "server/executor/issue/transfer.h"

#include <utility>

#include "base/mixed_hash.h"
#include "server/executor/issue/launch_accesses.h"

namespace tally::server {
namespace {

// Rows that follow one another without gaps are one.
std::optional<Transfer> InOnePiece(Transfer transfer) {
  uint64_t all_bytes = 0;
  if (__builtin_mul_overflow(transfer.row_bytes, transfer.rows, &all_bytes) || all_bytes == 0) return std::nullopt;
  const bool has_gaps = transfer.rows > 1 && (transfer.to_pitch != transfer.row_bytes ||
                                              (!transfer.is_fill() && transfer.from_pitch != transfer.row_bytes));
  if (has_gaps) return transfer;
  transfer.row_bytes *= std::exchange(transfer.rows, 1);
  transfer.to_pitch = transfer.from_pitch = 0;
  return transfer;
}

}  // namespace

std::optional<Transfer> TransferOf(const CUDA_MEMCPY3D& copy) {
  const auto is_memory = [](CUmemorytype type) {
    return type == CU_MEMORYTYPE_DEVICE || type == CU_MEMORYTYPE_UNIFIED;
  };
  if (copy.Depth != 1 || !is_memory(copy.srcMemoryType) || !is_memory(copy.dstMemoryType)) return std::nullopt;
  return InOnePiece(
      {.to = copy.dstDevice + (copy.dstZ * copy.dstHeight + copy.dstY) * copy.dstPitch + copy.dstXInBytes,
       .from = copy.srcDevice + (copy.srcZ * copy.srcHeight + copy.srcY) * copy.srcPitch + copy.srcXInBytes,
       .row_bytes = copy.WidthInBytes,
       .rows = copy.Height,
       .to_pitch = copy.dstPitch,
       .from_pitch = copy.srcPitch});
}

std::optional<Transfer> TransferOf(const CUDA_MEMSET_NODE_PARAMS& fill) {
  return InOnePiece({.to = fill.dst,
                     .row_bytes = uint64_t{fill.width} * fill.elementSize,
                     .rows = fill.height,
                     .to_pitch = fill.pitch,
                     .value = fill.value,
                     .element_bytes = fill.elementSize});
}

CUDA_MEMCPY3D CopyOf(const Transfer& copy) {
  CUDA_MEMCPY3D box{};
  box.srcMemoryType = box.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  box.srcDevice = copy.from;
  box.dstDevice = copy.to;
  box.srcPitch = copy.rows > 1 ? copy.from_pitch : copy.row_bytes;
  box.dstPitch = copy.rows > 1 ? copy.to_pitch : copy.row_bytes;
  box.srcHeight = box.dstHeight = box.Height = copy.rows;
  box.WidthInBytes = copy.row_bytes;
  box.Depth = 1;
  return box;
}

CUDA_MEMSET_NODE_PARAMS FillOf(const Transfer& fill) {
  CUDA_MEMSET_NODE_PARAMS parameters{};
  parameters.dst = fill.to;
  parameters.pitch = fill.rows > 1 ? fill.to_pitch : 0;
  parameters.value = fill.value;
  parameters.elementSize = fill.element_bytes;
  parameters.width = fill.row_bytes / fill.element_bytes;
  parameters.height = fill.rows;
  return parameters;
}

uint64_t GeometryOf(const Transfer& transfer) {
  uint64_t hash = Mixed(Mixed(transfer.element_bytes, transfer.row_bytes), transfer.rows);
  if (transfer.rows == 1) return hash;
  for (const uint64_t number :
       {uint64_t{transfer.to}, uint64_t{transfer.from}, transfer.to_pitch, transfer.from_pitch}) {
    hash = Mixed(hash, number);
  }
  return Mixed(hash, transfer.value);
}

const char* FindAccesses(const Transfer& transfer, const LaunchMemory& memory, LaunchAccesses* accesses,
                         MemoryAnswers* answers) {
  accesses->accesses.clear();
  const auto add = [&](CUdeviceptr address, uint64_t pitch, scheduler::AccessKind kind) -> const char* {
    const auto box = scheduler::Box::Rows(address, transfer.row_bytes, transfer.rows, pitch);
    if (!box) return "unknown-memory";
    if (const char* why = WhyNotBeside(*box, memory)) return why;
    if (answers != nullptr) {
      answers->AllocationOf(memory, box->begin());
      answers->SortWithin(memory, box->begin(), box->end());
    }
    accesses->accesses.push_back({*box, kind});
    return nullptr;
  };
  if (!transfer.is_fill()) {
    if (const char* why = add(transfer.from, transfer.from_pitch, scheduler::AccessKind::kRead)) return why;
  }
  return add(transfer.to, transfer.to_pitch, scheduler::AccessKind::kWrite);
}

}  // namespace tally::server
