#include "base/mapped_region.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <cerrno>

namespace tally {
namespace {

constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

Result<void*> TryMap(void* address, size_t size_bytes, int protection, int flags, int fd, std::string_view what,
                     uint64_t offset_bytes = 0) {
  void* mapped = ::mmap(address, size_bytes, protection, flags, fd, static_cast<off_t>(offset_bytes));
  if (mapped == MAP_FAILED) return std::unexpected(StatusFromErrno(errno, what));
  if (address != nullptr && mapped != address) {  // kernel without MAP_FIXED_NOREPLACE
    ::munmap(mapped, size_bytes);
    return Error(StatusCode::kAlreadyExists, fmt::format("{}: address {} is taken", what, address));
  }
  return mapped;
}

}  // namespace

MappedRegion& MappedRegion::operator=(MappedRegion&& other) noexcept {
  if (this != &other) {
    Reset();
    address_ = std::exchange(other.address_, nullptr);
    size_bytes_ = std::exchange(other.size_bytes_, 0);
  }
  return *this;
}

void MappedRegion::Reset() {
  if (address_ != nullptr) ::munmap(std::exchange(address_, nullptr), size_bytes_);
  size_bytes_ = 0;
}

Result<MappedRegion> MappedRegion::Map(int fd, size_t size_bytes) {
  const auto mapped = TryMap(nullptr, size_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, "map shared memory");
  if (!mapped) return std::unexpected(mapped.error());
  return MappedRegion(*mapped, size_bytes);
}

Result<MappedRegion> MappedRegion::MapAt(int fd, size_t size_bytes, void* address, uint64_t offset_bytes) {
  const auto mapped = TryMap(address, size_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED_NOREPLACE, fd,
                             "map shared memory at its address", offset_bytes);
  if (!mapped) return std::unexpected(mapped.error());
  return MappedRegion(*mapped, size_bytes);
}

Result<MappedRegion> MappedRegion::MapOver(int fd, size_t size_bytes, void* address, uint64_t offset_bytes) {
  const auto mapped = TryMap(address, size_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd,
                             "map shared memory over held addresses", offset_bytes);
  if (!mapped) return std::unexpected(mapped.error());
  return MappedRegion(*mapped, size_bytes);
}

Result<MappedRegion> MappedRegion::ReserveAt(void* address, size_t size_bytes) {
  const auto mapped =
      TryMap(address, size_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1,
             "reserve addresses");
  if (!mapped) return std::unexpected(mapped.error());
  return MappedRegion(*mapped, size_bytes);
}

Result<UniqueFd> CreateSealedMemfd(const std::string& name, size_t size_bytes) {
  return CreateSealedMemfd(name, size_bytes, size_bytes);
}

Result<UniqueFd> CreateSealedMemfd(const std::string& name, size_t size_bytes, size_t reserved_bytes) {
  UniqueFd fd(::memfd_create(name.c_str(), MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd.valid()) return std::unexpected(StatusFromErrno(errno, "create shared memory"));
  // posix_fallocate returns the error; it would retry EINTR only if we do.
  int error = 0;
  do {
    error = ::posix_fallocate(fd.get(), 0, static_cast<off_t>(reserved_bytes));
  } while (error == EINTR);
  if (error == 0 && ::ftruncate(fd.get(), static_cast<off_t>(size_bytes)) != 0) error = errno;
  if (error != 0)
    return std::unexpected(StatusFromErrno(error, fmt::format("reserve {} bytes of shared memory", reserved_bytes)));
  if (::fcntl(fd.get(), F_ADD_SEALS, kSeals) != 0) return std::unexpected(StatusFromErrno(errno, "seal shared memory"));
  return fd;
}

Status CommitPages(void* address, size_t size_bytes) {
  if (::madvise(address, size_bytes, MADV_POPULATE_WRITE) == 0 || errno == EINVAL) return OkStatus();
  return Status(StatusCode::kResourceExhausted, "no memory for shared pages");
}

Status CheckSealedMemfd(int fd, size_t size_bytes) {
  const int seals = ::fcntl(fd, F_GET_SEALS);
  if (seals < 0 || (seals & kSeals) != kSeals) {
    return Status(StatusCode::kInvalidArgument, "descriptor is not sealed shared memory");
  }
  struct stat file {};
  if (::fstat(fd, &file) != 0) return StatusFromErrno(errno, "stat shared memory");
  if (static_cast<size_t>(file.st_size) < size_bytes) {
    return Status(StatusCode::kInvalidArgument,
                  fmt::format("shared memory has {} bytes, {} expected", file.st_size, size_bytes));
  }
  return OkStatus();
}

}  // namespace tally
