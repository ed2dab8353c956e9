// What the program declares of its next launch: exported by this library and by no driver. include/tally/segments.h is
// for programs.
#include <cerrno>
#include <cstddef>
#include <new>
#include <span>

#include "client-shim/transport/declared_segments.h"
#include "client-shim/transport/session.h"
#include "include/tally/segments.h"

static_assert(TALLY_MOST_SEGMENTS == tally::shm::kMaxDeclaredBoxes);

namespace tally::client_shim {
namespace {

// Whether its last byte has an address. One without bytes may be anywhere.
bool IsAPlace(const tally_segment& segment) {
  if (segment.row_bytes == 0 || segment.rows == 0) return true;
  uint64_t length = 0;
  uint64_t end = 0;
  return !__builtin_mul_overflow(segment.rows - 1, segment.pitch, &length) &&
         !__builtin_add_overflow(length, segment.row_bytes, &length) &&
         !__builtin_add_overflow(reinterpret_cast<uintptr_t>(segment.address), length, &end);
}

bool ArePlaces(std::span<const tally_segment> segments) {
  for (const tally_segment& segment : segments) {
    if (!IsAPlace(segment)) return false;
  }
  return true;
}

shm::DeclaredBox* Write(std::span<const tally_segment> segments, shm::DeclaredBox* out) {
  for (const tally_segment& segment : segments) {
    *out++ = {reinterpret_cast<uintptr_t>(segment.address), segment.row_bytes, segment.rows, segment.pitch};
  }
  return out;
}

// Of the calling thread, with nothing pending. Null: nobody wants to know (`*error` is 0), or there is no memory.
DeclaredSegments* Begin(int* error) {
  *error = 0;
  if (t_thread.declared != nullptr) t_thread.declared->is_pending = false;
  const Session* const session = CurrentSession();
  if (session == nullptr || !session->wants_declarations()) return nullptr;
  if (t_thread.declared == nullptr) {
    t_thread.declared = new (std::nothrow) DeclaredSegments{};
    if (t_thread.declared == nullptr) *error = ENOMEM;
    WatchThreadEnd();
  }
  return t_thread.declared;
}

int Declare(const tally_segment* reads, size_t num_reads, const tally_segment* writes, size_t num_writes) {
  int error = 0;
  DeclaredSegments* const declared = Begin(&error);
  if (declared == nullptr) return error;
  if (num_reads > TALLY_MOST_SEGMENTS || num_writes > TALLY_MOST_SEGMENTS - num_reads) return E2BIG;
  if ((reads == nullptr && num_reads != 0) || (writes == nullptr && num_writes != 0)) return EINVAL;
  const std::span read(reads, num_reads);
  const std::span written(writes, num_writes);
  if (!ArePlaces(read) || !ArePlaces(written)) return EINVAL;
  Write(written, Write(read, declared->boxes));
  declared->num_reads = static_cast<uint16_t>(num_reads);
  declared->num_writes = static_cast<uint16_t>(num_writes);
  declared->is_opaque = false;
  declared->is_pending = true;
  return 0;
}

int DeclareOpaque() {
  int error = 0;
  DeclaredSegments* const declared = Begin(&error);
  if (declared == nullptr) return error;
  declared->num_reads = declared->num_writes = 0;
  declared->is_opaque = true;
  declared->is_pending = true;
  return 0;
}

}  // namespace
}  // namespace tally::client_shim

extern "C" {
__attribute__((visibility("default"))) int tally_declare_segments(const tally_segment* reads, size_t num_reads,
                                                                  const tally_segment* writes, size_t num_writes) {
  return tally::client_shim::Declare(reads, num_reads, writes, num_writes);
}
__attribute__((visibility("default"))) int tally_declare_opaque() { return tally::client_shim::DeclareOpaque(); }
}
