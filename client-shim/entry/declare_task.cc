// What the program declares of tasks of graphs that it captures: exported by this library and by no driver.
// include/tally/taskgraph.h is for programs.
#include <cerrno>
#include <cstring>
#include <span>

#include "client-shim/entry/guard.h"
#include "client-shim/state/process.h"
#include "client-shim/transport/session.h"
#include "include/tally/taskgraph.h"
#include "proto/shm/records_launch_abi.h"

static_assert(TALLY_MOST_REGIONS == tally::shm::kMaxDeclaredBoxes);

namespace tally::client_shim {
namespace {

// Whether its last byte has an address. One without bytes may be anywhere.
bool IsAPlace(const tallyTaskRegion& region) {
  if (region.row_bytes == 0 || region.rows == 0) return true;
  uint64_t length = 0;
  uint64_t end = 0;
  return !__builtin_mul_overflow(region.rows - 1, region.pitch, &length) &&
         !__builtin_add_overflow(length, region.row_bytes, &length) &&
         !__builtin_add_overflow(reinterpret_cast<uintptr_t>(region.address), length, &end);
}

// The stream of a call in a session that wants to know; false: nothing is to happen.
bool Ask(CUstream stream, Call* call, uint64_t* word) {
  const Session* const session = CurrentSession();
  if (session == nullptr || !session->wants_tasks()) return false;
  return BeginCallInContext(call) == CUDA_SUCCESS && ResolveStream(stream, word) == CUDA_SUCCESS &&
         call->process->captures.any();
}

int ErrorOf(CUresult result) { return result == CUDA_ERROR_INVALID_VALUE ? EINVAL : 0; }

int BeginTask(CUstream stream, const tallyTaskRegion* regions, size_t num_regions) {
  if (num_regions > TALLY_MOST_REGIONS) return E2BIG;
  if (regions == nullptr && num_regions != 0) return EINVAL;
  shm::BeginTask head{};
  for (const tallyTaskRegion& region : std::span(regions, num_regions)) {
    if (region.access < TALLY_READS || region.access > TALLY_SCRATCH) return EINVAL;
    if (!IsAPlace(region)) return EINVAL;
    head.num_reads += (region.access & TALLY_READS) != 0 ? 1 : 0;
    head.num_writes += (region.access & TALLY_WRITES) != 0 ? 1 : 0;
    head.num_scratch += region.access == TALLY_SCRATCH ? 1 : 0;
    if (head.num_reads + head.num_writes + head.num_scratch > TALLY_MOST_REGIONS) return E2BIG;
  }
  Call call;
  if (!Ask(stream, &call, &head.stream)) return 0;
  const size_t num_boxes = head.num_reads + head.num_writes + head.num_scratch;
  std::byte* room = call.channel->Begin(shm::Op::kBeginTask,
                                        static_cast<uint32_t>(sizeof(head) + num_boxes * sizeof(shm::DeclaredBox)));
  if (room == nullptr) return 0;  // the next call says why
  std::memcpy(room, &head, sizeof(head));
  room += sizeof(head);
  for (const int access : {TALLY_READS, TALLY_WRITES, TALLY_SCRATCH}) {
    for (const tallyTaskRegion& region : std::span(regions, num_regions)) {
      if ((region.access & access) == 0) continue;
      const shm::DeclaredBox box{reinterpret_cast<uintptr_t>(region.address), region.row_bytes, region.rows,
                                 region.pitch};
      std::memcpy(room, &box, sizeof(box));
      room += sizeof(box);
    }
  }
  return ErrorOf(call.channel->Call().result);
}

int EndTask(CUstream stream) {
  Call call;
  uint64_t word = 0;
  if (!Ask(stream, &call, &word)) return 0;
  return ErrorOf(call.channel->CallStruct(shm::Op::kEndTask, word).result);
}

}  // namespace
}  // namespace tally::client_shim

extern "C" {
__attribute__((visibility("default"))) int tally_task_begin(void* stream, const tallyTaskRegion* regions,
                                                            size_t num_regions) {
  return tally::client_shim::BeginTask(static_cast<CUstream>(stream), regions, num_regions);
}
__attribute__((visibility("default"))) int tally_task_end(void* stream) {
  return tally::client_shim::EndTask(static_cast<CUstream>(stream));
}
}
