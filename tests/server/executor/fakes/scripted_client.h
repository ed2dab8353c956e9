// The client's half of a session, driven by a test: no shim, so that it can also write what the shim never would.
//
// A ScriptedChannel is used by one thread at a time.
#pragma once

#include <algorithm>
#include <cstring>
#include <iterator>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/mapped_region.h"
#include "base/unix_socket.h"
#include "proto/shm/arrival_abi.h"
#include "proto/shm/channel_abi.h"
#include "proto/shm/handshake_abi.h"
#include "proto/shm/records_abi.h"

namespace tally::fakes {

// The bytes of a payload, put together as the wire format says.
class Payload {
 public:
  template <typename T>
  Payload& Put(const T& value) {
    return PutBytes(&value, sizeof(value));
  }
  Payload& PutWord(uint64_t word) { return Put(word); }
  Payload& PutBytes(const void* bytes, size_t size) {
    // Byte by byte: GCC 12 takes what it makes of larger steps for an overflow.
    std::copy_n(static_cast<const std::byte*>(bytes), size, std::back_inserter(bytes_));
    bytes_.resize((bytes_.size() + 7) / 8 * 8);
    return *this;
  }
  std::span<const std::byte> bytes() const { return bytes_; }

 private:
  std::vector<std::byte> bytes_;
};

struct Answer {
  uint32_t result = 0xffffffff;  // CUresult
  uint16_t flags = 0;
  std::vector<std::byte> payload;
  bool arrived = false;  // false: the session ended instead

  template <typename T>
  T Get(size_t offset = 0) const {
    T value{};
    if (offset + sizeof(T) <= payload.size()) std::memcpy(&value, payload.data() + offset, sizeof(T));
    return value;
  }
};

class ScriptedClient;

class ScriptedChannel {
 public:
  // Takes a sequence number, publishes.
  void Post(shm::Op op, const Payload& payload = {}, uint32_t context = 0) {
    Publish(static_cast<uint16_t>(op), payload, 0, context);
  }
  Answer Call(shm::Op op, const Payload& payload = {}, uint32_t context = 0) {
    return CallNumber(static_cast<uint16_t>(op), payload, context);
  }
  Answer CallNumber(uint16_t op, const Payload& payload = {}, uint32_t context = 0);
  void Publish(uint16_t op, const Payload& payload, uint16_t flags, uint32_t context,
               std::optional<uint64_t> sequence_number = std::nullopt);
  // Waits for the next reply.
  Answer Await();

  shm::ChannelHeader& header() { return *reinterpret_cast<shm::ChannelHeader*>(region_.data()); }
  std::byte* request_ring() { return region_.data() + header().request_offset; }
  std::byte* arena() { return region_.data() + header().arena_offset; }
  std::span<std::byte> region() { return region_.bytes(); }
  // Rings the server's doorbell as after a publication.
  void Ring();
  // How often the ring was full.
  uint64_t num_waits() const { return num_waits_; }

 private:
  friend class ScriptedClient;
  ScriptedChannel(ScriptedClient& client, MappedRegion region) : client_(client), region_(std::move(region)) {}

  ScriptedClient& client_;
  MappedRegion region_;
  uint64_t write_position_ = 0;
  uint64_t read_position_ = 0;
  uint64_t num_waits_ = 0;
};

class ScriptedClient {
 public:
  explicit ScriptedClient(UniqueFd socket) : socket_(std::move(socket)) {}

  bool Attach();
  // Null: refused, or the session is over.
  std::unique_ptr<ScriptedChannel> OpenChannel();
  std::optional<shm::SessionReply> Request(shm::SessionRequestKind kind, uint64_t value0 = 0, uint64_t value1 = 0,
                                           uint64_t value2 = 0, UniqueFd* fd = nullptr);
  // The executor asked for the PTX of machine code.
  bool wants_ptx() const { return wants_ptx_; }
  bool IsOver() const { return PeerHungUp(socket_.get()); }
  void WaitUntilOver();
  void Hangup() { socket_.Reset(); }
  int socket() const { return socket_.get(); }
  shm::ArrivalPage& arrivals() { return *reinterpret_cast<shm::ArrivalPage*>(region_.data() + shm::kArrivalOffset); }
  shm::SessionHeader& header() { return *reinterpret_cast<shm::SessionHeader*>(region_.data()); }

 private:
  UniqueFd socket_;
  MappedRegion region_;
  bool wants_ptx_ = false;
};

}  // namespace tally::fakes
