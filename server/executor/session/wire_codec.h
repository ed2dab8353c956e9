// Reads request payloads and writes reply payloads: 8-byte little-endian words (proto/shm/wire_format.md). The
// generated calls and the hand-written operations both use it.
//
// A reader never leaves its bytes: what is missing reads as zero and AtEnd() stays false for ever, so that a caller
// checks once, after the last Take.
#pragma once

#include <cuda.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "proto/shm/handles_abi.h"
#include "server/executor/channel/reply_writer.h"

namespace tally::server {

class ClientNames;
class ServedRequest;

constexpr size_t PaddedTo8(size_t bytes) { return (bytes + 7) & ~size_t{7}; }

class WireReader {
 public:
  explicit WireReader(std::span<const std::byte> bytes) : bytes_(bytes) {}

  uint64_t TakeWord() {
    uint64_t word = 0;
    TakeStruct(&word);
    return word;
  }
  template <typename T>
  T TakeScalar() {
    static_assert(sizeof(T) <= sizeof(uint64_t) && std::is_trivially_copyable_v<T>);
    const uint64_t word = TakeWord();
    std::remove_const_t<T> value;
    std::memcpy(&value, &word, sizeof(value));
    return value;
  }
  // A device of the executor; an unknown ordinal makes the request malformed.
  CUdevice TakeDevice(ServedRequest& served);
  template <typename T>
  void TakeStruct(T* out) {
    static_assert(std::is_trivially_copyable_v<T>);
    const std::span<const std::byte> bytes = TakeBytes(sizeof(T));
    if (!bytes.empty()) std::memcpy(out, bytes.data(), sizeof(T));
  }
  std::string TakeString() {
    const uint64_t size = TakeWord();
    const std::span<const std::byte> bytes = TakeBytes(size);
    return std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  }
  template <typename T>
  void TakeArray(std::vector<T>* out) {
    const uint64_t count = TakeWord();
    if (count > bytes_.size() / sizeof(T)) {
      Fail();
      return;
    }
    const std::span<const std::byte> bytes = TakeBytes(count * sizeof(T));
    out->resize(count);
    if (count != 0) std::memcpy(out->data(), bytes.data(), bytes.size());
  }
  // How many elements the caller has room for, bounded by what a reply can carry: a longer answer is refused as too
  // long by WireWriter, not cut.
  size_t TakeCount() {
    return static_cast<size_t>(std::min<uint64_t>(TakeWord(), kMaxReplyPayloadBytes / sizeof(uint64_t) + 1));
  }
  // Exactly `size` bytes and then padding to 8; empty if there are not as many. The last part's padding may be missing.
  std::span<const std::byte> TakeBytes(uint64_t size) {
    if (size > bytes_.size()) {
      Fail();
      return {};
    }
    const std::span<const std::byte> result = bytes_.first(size);
    bytes_ = bytes_.subspan(std::min(PaddedTo8(size), bytes_.size()));
    return result;
  }
  size_t remaining() const { return bytes_.size(); }
  bool ok() const { return !failed_; }
  bool AtEnd() const { return !failed_ && bytes_.empty(); }

 private:
  void Fail() {
    failed_ = true;
    bytes_ = {};
  }

  std::span<const std::byte> bytes_;
  bool failed_ = false;
};

class WireWriter {
 public:
  WireWriter() { bytes_.reserve(512); }

  void PutWord(uint64_t word) { PutStruct(word); }
  template <typename T>
  void PutStruct(const T& value) {
    static_assert(std::is_trivially_copyable_v<T>);
    PutBytes(std::as_bytes(std::span(&value, 1)));
  }
  template <typename T>
  void PutArray(std::span<T> values) {
    PutBytes(std::as_bytes(values));
  }
  // The id of a driver object of this session, named now if it has no name yet; 0 for null.
  template <typename T>
  void PutHandle(ClientNames& names, shm::HandleKind kind, T* value) {
    PutHandleOf(names, kind, value);
  }
  template <typename T>
  void PutHandles(ClientNames& names, shm::HandleKind kind, std::span<T*> values) {
    for (T* value : values) PutHandleOf(names, kind, value);
  }
  // The bytes and padding to 8.
  void PutBytes(std::span<const std::byte> bytes) {
    const size_t at = bytes_.size();
    if (at + PaddedTo8(bytes.size()) > kMaxReplyPayloadBytes) {
      overflowed_ = true;
      return;
    }
    bytes_.resize(at + PaddedTo8(bytes.size()));
    if (!bytes.empty()) std::memcpy(bytes_.data() + at, bytes.data(), bytes.size());
  }
  // Bytes whose number is the payload's, without padding: nothing may follow.
  void PutText(std::span<const char> text) {
    if (bytes_.size() + text.size() > kMaxReplyPayloadBytes) {
      overflowed_ = true;
      return;
    }
    const auto bytes = std::as_bytes(text);
    bytes_.insert(bytes_.end(), bytes.begin(), bytes.end());
  }
  void Clear() {
    bytes_.clear();
    overflowed_ = false;
  }

  // The answer is longer than a reply can be.
  bool overflowed() const { return overflowed_; }
  std::span<const std::byte> bytes() const { return bytes_; }

 private:
  void PutHandleOf(ClientNames& names, shm::HandleKind kind, void* value);

  std::vector<std::byte> bytes_;
  bool overflowed_ = false;
};

}  // namespace tally::server
