#include "client-shim/state/refusals.h"

#include <atomic>
#include <cstddef>
#include <cstring>
#include <string_view>

#include "base/log.h"
#include "client-shim/state/process.h"
#include "proto/driver/generated/driver_symbols.h"

namespace tally::client_shim {
namespace {

constinit std::atomic<bool> g_was_refused[kNumDriverSymbols] = {};

// Uses refused so far, by the address of the literal that names them; full only if we write more refusals than this.
constinit std::atomic<const char*> g_refused_uses[256] = {};

// Tells the executor, which counts for the metrics. Before cuInit, and after the executor's end, nobody counts.
void NoteRefusal(size_t symbol_index) {
  Call call;
  if (CurrentProcess() == nullptr || BeginCall(&call) != CUDA_SUCCESS) return;
  std::byte* room = call.channel->Begin(shm::Op::kNoteRefusal, sizeof(shm::NoteRefusal));
  if (room == nullptr) return;
  const shm::NoteRefusal note{static_cast<uint32_t>(symbol_index), 0};
  std::memcpy(room, &note, sizeof(note));
  call.channel->SetContext(shm::kNoContext);  // of no matter, and the thread's own may be gone
  call.channel->Post();
}

}  // namespace

CUresult Refuse(uint32_t symbol_index) {
  if (!g_was_refused[symbol_index].exchange(true, std::memory_order_relaxed))
    LOG_WARNING("{} is not supported by Tally: CUDA_ERROR_NOT_SUPPORTED", kDriverSymbols[symbol_index].name);
  NoteRefusal(symbol_index);
  return CUDA_ERROR_NOT_SUPPORTED;
}

CUresult RefuseUse(const char* what) {
  for (auto& slot : g_refused_uses) {
    const char* known = nullptr;
    if (slot.compare_exchange_strong(known, what)) {
      LOG_WARNING("not supported by Tally: {}: CUDA_ERROR_NOT_SUPPORTED", what);
      break;
    }
    if (known == what) break;
  }
  const std::string_view text(what);
  if (const size_t index = FindDriverSymbol(text.substr(0, text.find(':'))); index < kNumDriverSymbols)
    NoteRefusal(index);
  return CUDA_ERROR_NOT_SUPPORTED;
}

CUresult RefuseSecondRank() {
  return RefuseUse(
      "cuIpcOpenMemHandle_v2: two processes with NCCL in one executor would hang; start them by torchrun, mpirun or "
      "srun, or by 'tally-run --apart', so that each has its own");
}

}  // namespace tally::client_shim
