#include "sim-driver/api/stream_memory.h"

#include <memory>

#include "sim-driver/api/error.h"
#include "sim-driver/api/memory_map.h"

namespace tally::sim_driver {
namespace {

bool IsWait(CUstreamBatchMemOpType type) {
  return type == CU_STREAM_MEM_OP_WAIT_VALUE_32 || type == CU_STREAM_MEM_OP_WAIT_VALUE_64;
}
bool IsWrite(CUstreamBatchMemOpType type) {
  return type == CU_STREAM_MEM_OP_WRITE_VALUE_32 || type == CU_STREAM_MEM_OP_WRITE_VALUE_64;
}
bool Is64(CUstreamBatchMemOpType type) {
  return type == CU_STREAM_MEM_OP_WAIT_VALUE_64 || type == CU_STREAM_MEM_OP_WRITE_VALUE_64;
}

template <typename Word>
bool Compares(uint64_t address, Word wanted, unsigned flags) {
  const Word found = __atomic_load_n(reinterpret_cast<const Word*>(address), __ATOMIC_ACQUIRE);
  switch (flags & 3) {
    case CU_STREAM_WAIT_VALUE_GEQ:
      // Cyclic, so that counters may wrap.
      return static_cast<std::make_signed_t<Word>>(found - wanted) >= 0;
    case CU_STREAM_WAIT_VALUE_EQ:
      return found == wanted;
    case CU_STREAM_WAIT_VALUE_AND:
      return (found & wanted) != 0;
    default:  // NOR
      return static_cast<Word>(~(found | wanted)) != 0;
  }
}

bool Perform(const CUstreamBatchMemOpParams& operation) {
  const CUstreamBatchMemOpType type = operation.operation;
  if (!IsWait(type) && !IsWrite(type)) return true;  // barriers: everything is coherent here
  const bool is_write = IsWrite(type);
  const uint64_t address = is_write ? operation.writeValue.address : operation.waitValue.address;
  if (!MemoryMap::Get().IsAccessible(address, Is64(type) ? 8 : 4, is_write)) return true;
  if (!is_write) {
    return Is64(type) ? Compares<uint64_t>(address, operation.waitValue.value64, operation.waitValue.flags)
                      : Compares<uint32_t>(address, operation.waitValue.value, operation.waitValue.flags);
  }
  if (Is64(type)) {
    __atomic_store_n(reinterpret_cast<uint64_t*>(address), operation.writeValue.value64, __ATOMIC_RELEASE);
  } else {
    __atomic_store_n(reinterpret_cast<uint32_t*>(address), operation.writeValue.value, __ATOMIC_RELEASE);
  }
  return true;
}

}  // namespace

void CheckStreamMemoryOperation(const CUstreamBatchMemOpParams& operation) {
  const CUstreamBatchMemOpType type = operation.operation;
  if (type == CU_STREAM_MEM_OP_FLUSH_REMOTE_WRITES) Fail(CUDA_ERROR_NOT_SUPPORTED);
  if (type == CU_STREAM_MEM_OP_BARRIER) return;
  Require(IsWait(type) || IsWrite(type), CUDA_ERROR_INVALID_VALUE);
  const uint64_t num_bytes = Is64(type) ? 8 : 4;
  const uint64_t address = IsWrite(type) ? operation.writeValue.address : operation.waitValue.address;
  const unsigned flags = IsWrite(type) ? operation.writeValue.flags : operation.waitValue.flags;
  Require(address % num_bytes == 0 && MemoryMap::Get().IsAccessible(address, num_bytes, IsWrite(type)),
          CUDA_ERROR_INVALID_VALUE);
  if (IsWrite(type)) {
    Require((flags & ~static_cast<unsigned>(CU_STREAM_WRITE_VALUE_NO_MEMORY_BARRIER)) == 0, CUDA_ERROR_INVALID_VALUE);
  } else {
    Require((flags & CU_STREAM_WAIT_VALUE_FLUSH) == 0, CUDA_ERROR_NOT_SUPPORTED);
    Require(flags <= 3, CUDA_ERROR_INVALID_VALUE);
  }
}

std::function<bool()> MakeStreamMemoryPoll(std::vector<CUstreamBatchMemOpParams> operations) {
  struct Progress {
    std::vector<CUstreamBatchMemOpParams> operations;
    size_t next = 0;
  };
  auto progress = std::make_shared<Progress>();
  progress->operations = std::move(operations);
  return [progress] {
    while (progress->next < progress->operations.size()) {
      if (!Perform(progress->operations[progress->next])) return false;
      ++progress->next;
    }
    return true;
  };
}

}  // namespace tally::sim_driver
