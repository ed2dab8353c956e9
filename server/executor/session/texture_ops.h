// Arrays, texture and surface objects, tensor maps: what the generated calls of these chapters need besides.
//
// Texture and surface objects are the driver's own values, because kernels get them as parameters; a call may only name
// the session's own. The arrays and addresses inside their descriptions are the session's names and are translated.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <unordered_map>

namespace tally::server {

class ClientNames;
class ServedRequest;
class SessionState;
class WireReader;
class WireWriter;

struct SamplingObject {
  uint32_t context = 0;           // of the client, when it was made
  CUDA_RESOURCE_DESC resource{};  // as the client gave it
};
// By the driver's value.
using SamplingObjects = std::unordered_map<unsigned long long, SamplingObject>;

// What the arrays and mipmaps that a session owns count for, by the driver's handle.
using ArraySizes = std::unordered_map<const void*, uint64_t>;

// Arrays that go with another one: planes of an array, levels of a mipmap. Value: what they go with.
using BorrowedArrays = std::unordered_map<CUarray, const void*>;

// As ServeBeforeWire (operations.h), for these chapters.
bool ServeTexturesBeforeWire(ServedRequest& served, ClientNames& names, uint16_t op, WireReader in, WireWriter& out,
                             CUresult* result);

// `owner` is about to be destroyed: its planes or levels go with it, their names too, and its bytes are free again.
void ForgetArray(SessionState& session, const void* owner);
// Destroys the objects made in one context, or in all (kNoContext); before the arrays that they are about.
void DestroySamplingObjects(SessionState& session, uint32_t context);

}  // namespace tally::server
