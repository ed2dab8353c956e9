// Arrays of one session, and the texture and surface objects that it has made of arrays and memory.
//
// Guarded by the session's sequencer. What it is made of must outlive it.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <unordered_map>

#include "server/executor/driver/driver_table.h"
#include "server/executor/session/handle_tables.h"
#include "server/executor/session/memory_map.h"

namespace tally::server {

struct SamplingObject {
  uint32_t context = 0;           // of the client, when it was made
  CUDA_RESOURCE_DESC resource{};  // as the client gave it
};
// By the driver's value.
using SamplingObjects = std::unordered_map<unsigned long long, SamplingObject>;

// What the arrays and mipmaps that a session owns count for, by the driver's handle.
struct ArraySize {
  uint64_t size_bytes = 0;
  SharedCharge charge{};
};
using ArraySizes = std::unordered_map<const void*, ArraySize>;

// Arrays that go with another one: planes of an array, levels of a mipmap. Value: what they go with.
using BorrowedArrays = std::unordered_map<CUarray, const void*>;

class ClientArrays {
 public:
  ClientArrays(const DriverTable& driver, HandleTables& handles, MemoryMap& memory)
      : driver_(driver), handles_(handles), memory_(memory) {}

  SamplingObjects textures;
  SamplingObjects surfaces;
  ArraySizes sizes;
  BorrowedArrays borrowed;

  // `owner` is about to be destroyed: its planes or levels go with it, their names too, and its bytes are free again.
  void Forget(const void* owner);
  // Destroys what was made in one client context, or in all (kNoContext): objects before the arrays that they are
  // about.
  void Destroy(uint32_t context);

 private:
  const DriverTable& driver_;
  HandleTables& handles_;
  MemoryMap& memory_;
};

}  // namespace tally::server
