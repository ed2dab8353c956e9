#include "tests/client-shim/recording/record_calls.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <cstdlib>

namespace tally::client_shim {
namespace {

constexpr unsigned int kNumSymbols = 0
#define TALLY_SYMBOL(index, name, verdict) +1
#include "proto/driver/generated/symbols.inc"
#undef TALLY_SYMBOL
    ;

using Notes = std::atomic<uint8_t>;
constinit std::atomic<Notes*> g_notes = nullptr;
constinit Notes g_nowhere[kNumSymbols] = {};

Notes* OpenNotes() {
  const char* path = std::getenv("TALLY_RECORD_CALLS");
  Notes* notes = g_nowhere;
  const int fd = path != nullptr ? ::open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600) : -1;
  if (fd >= 0 && ::ftruncate(fd, kNumSymbols) == 0) {
    void* const shared = ::mmap(nullptr, kNumSymbols, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (shared != MAP_FAILED) notes = static_cast<Notes*>(shared);
  }
  if (fd >= 0) ::close(fd);
  g_notes.store(notes, std::memory_order_release);  // two threads may both get here: two mappings of one file
  return notes;
}

}  // namespace

CUresult RecordCall(unsigned int symbol_index, CUresult result) {
  Notes* notes = g_notes.load(std::memory_order_acquire);
  if (notes == nullptr) notes = OpenNotes();
  notes[symbol_index].fetch_or(result == CUDA_SUCCESS ? 1 : 2, std::memory_order_relaxed);
  return result;
}

}  // namespace tally::client_shim
