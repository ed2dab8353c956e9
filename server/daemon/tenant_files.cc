#include "server/daemon/tenant_files.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <ctime>
#include <iterator>

#include "base/mapped_region.h"
#include "base/unique_fd.h"
#include "proto/shm/tenant_page_abi.h"

namespace tally::server {
namespace {

// Its slots are locked by the executors that have them.
bool HasExecutor(int fd) {
  struct flock lock {};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  lock.l_len = shm::kTenantSlots;
  return ::fcntl(fd, F_OFD_GETLK, &lock) != 0 || lock.l_type != F_UNLCK;
}

bool HasDebt(int fd) {
  const auto region = MappedRegion::Map(fd, sizeof(shm::TenantPage));
  if (!region) return true;
  const auto& page = *reinterpret_cast<const shm::TenantPage*>(region->data());
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  const int64_t now_ns = int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
  return std::ranges::any_of(page.used_until_ns, [now_ns](const auto& until_ns) { return until_ns.load() > now_ns; });
}

}  // namespace

bool RemoveTenantPage(const std::string& path) {
  const UniqueFd fd(::open(path.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW));
  if (!fd.valid()) return errno == ENOENT || ::unlink(path.c_str()) == 0;
  if (::flock(fd.get(), LOCK_EX | LOCK_NB) != 0) return false;  // an executor is about to have it
  struct stat state {};
  if (::fstat(fd.get(), &state) != 0 || state.st_nlink == 0) return true;
  if (state.st_size == sizeof(shm::TenantPage) && (HasExecutor(fd.get()) || HasDebt(fd.get()))) return false;
  return ::unlink(path.c_str()) == 0;
}

}  // namespace tally::server
