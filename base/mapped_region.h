// An mmap that unmaps itself, and the sealed memfds that two processes share.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>

#include "base/status.h"
#include "base/unique_fd.h"

namespace tally {

class MappedRegion {
 public:
  MappedRegion() = default;
  MappedRegion(MappedRegion&& other) noexcept
      : address_(std::exchange(other.address_, nullptr)), size_bytes_(std::exchange(other.size_bytes_, 0)) {}
  MappedRegion& operator=(MappedRegion&& other) noexcept;
  ~MappedRegion() { Reset(); }

  // Maps `size_bytes` of `fd` shared and writable, anywhere.
  static Result<MappedRegion> Map(int fd, size_t size_bytes);
  // The same at exactly `address`, from `offset_bytes` of the file on; kAlreadyExists if anything is mapped there
  // (nothing is ever replaced).
  static Result<MappedRegion> MapAt(int fd, size_t size_bytes, void* address, uint64_t offset_bytes = 0);
  // The same, replacing whatever is mapped there: for addresses that the caller holds.
  static Result<MappedRegion> MapOver(int fd, size_t size_bytes, void* address, uint64_t offset_bytes = 0);
  // Reserves addresses without access (PROT_NONE) at exactly `address`; kAlreadyExists as above.
  static Result<MappedRegion> ReserveAt(void* address, size_t size_bytes);

  bool valid() const { return address_ != nullptr; }
  std::byte* data() const { return static_cast<std::byte*>(address_); }
  size_t size_bytes() const { return size_bytes_; }
  std::span<std::byte> bytes() const { return {data(), size_bytes_}; }
  void Reset();
  // Gives up ownership: the mapping stays until the process ends.
  void Leak() { address_ = nullptr; }

 private:
  MappedRegion(void* address, size_t size_bytes) : address_(address), size_bytes_(size_bytes) {}

  void* address_ = nullptr;
  size_t size_bytes_ = 0;
};

// A zeroed anonymous file of exactly `size_bytes` that nobody can shrink, grow or unseal: a peer that maps it cannot
// make us fault. `name` is for /proc only. Fails with kResourceExhausted when shared memory is used up (pages are
// reserved here, so that a full /dev/shm shows as an error and not later as SIGBUS). With `reserved_bytes` only the
// pages of the beginning are: whoever writes first to the others calls CommitPages.
Result<UniqueFd> CreateSealedMemfd(const std::string& name, size_t size_bytes);
Result<UniqueFd> CreateSealedMemfd(const std::string& name, size_t size_bytes, size_t reserved_bytes);
// Makes the pages of mapped shared memory be there. kResourceExhausted where a write to them would be a SIGBUS. (Linux
// before 5.14 cannot tell: success.)
Status CommitPages(void* address, size_t size_bytes);
// Checks that a received descriptor is a memfd with these seals and at least `size_bytes`; kInvalidArgument otherwise.
Status CheckSealedMemfd(int fd, size_t size_bytes);

}  // namespace tally
