#include "server/executor/dispatch/tenant_page.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <cerrno>

namespace tally::server {
namespace {

// The byte of the file whose lock says that a slot has an owner.
struct flock LockOf(size_t slot) {
  struct flock lock {};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  lock.l_start = static_cast<off_t>(slot);
  lock.l_len = 1;
  return lock;
}

// Between executors. A process that dies lets go of it.
class FileLock {
 public:
  explicit FileLock(int fd) : fd_(fd) {
    while (::flock(fd_, LOCK_EX) != 0 && errno == EINTR) {
    }
  }
  ~FileLock() { ::flock(fd_, LOCK_UN); }
  FileLock(const FileLock&) = delete;
  FileLock& operator=(const FileLock&) = delete;

 private:
  const int fd_;
};

}  // namespace

Result<std::unique_ptr<TenantPage>> TenantPage::Open(const std::string& path) {
  for (;;) {
    auto opened = OpenOnce(path);
    if (opened || opened.error().code() != StatusCode::kAborted) return opened;
  }
}

Result<std::unique_ptr<TenantPage>> TenantPage::OpenOnce(const std::string& path) {
  UniqueFd fd(path.empty() ? ::memfd_create("tally-tenant", MFD_CLOEXEC)
                           : ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!fd.valid()) return std::unexpected(StatusFromErrno(errno, fmt::format("open tenant page '{}'", path)));
  if (::ftruncate(fd.get(), sizeof(shm::TenantPage)) != 0) {
    return std::unexpected(StatusFromErrno(errno, "size tenant page"));
  }
  auto region = MappedRegion::Map(fd.get(), sizeof(shm::TenantPage));
  if (!region) return std::unexpected(region.error());
  std::unique_ptr<TenantPage> opened(new TenantPage(std::move(fd), std::move(*region)));
  if (const Status joined = opened->Join(path); !joined.ok()) return std::unexpected(joined);
  return opened;
}

Status TenantPage::Join(const std::string& path) {
  const FileLock lock(fd_.get());
  struct stat state {};
  // Who comes later would not see what is counted there.
  if (!path.empty() && ::fstat(fd_.get(), &state) == 0 && state.st_nlink == 0) {
    return Status(StatusCode::kAborted, fmt::format("'{}' was removed", path));
  }
  if (page().magic.load() == 0) {
    page().version = shm::kTenantPageVersion;
    page().magic.store(shm::kTenantPageMagic);
  }
  if (page().magic.load() != shm::kTenantPageMagic || page().version != shm::kTenantPageVersion) {
    return Status(StatusCode::kFailedPrecondition, fmt::format("'{}' is no tenant page of this version", path));
  }
  return ClaimSlot();
}

TenantPage::~TenantPage() {
  if (slot_ == nullptr) return;
  for (auto& held : slot_->held_bytes) held.store(0);
}

Status TenantPage::ClaimSlot() {
  for (size_t i = 0; i < shm::kTenantSlots; ++i) {
    struct flock lock = LockOf(i);
    if (::fcntl(fd_.get(), F_OFD_SETLK, &lock) != 0) continue;
    slot_ = &page().slot[i];
    for (auto& held : slot_->held_bytes) held.store(0);  // of one that has died
    return OkStatus();
  }
  return Status(StatusCode::kResourceExhausted,
                fmt::format("more than {} executors of one tenant at one time", shm::kTenantSlots));
}

// With the file's lock.
void TenantPage::ForgetDeadOwners() {
  for (size_t i = 0; i < shm::kTenantSlots; ++i) {
    shm::TenantSlot& slot = page().slot[i];
    if (&slot == slot_) continue;
    struct flock lock = LockOf(i);
    if (::fcntl(fd_.get(), F_OFD_GETLK, &lock) != 0 || lock.l_type != F_UNLCK) continue;
    for (auto& held : slot.held_bytes) held.store(0);
  }
}

uint64_t TenantPage::HeldBytes(int device) const {
  uint64_t sum = 0;
  for (const shm::TenantSlot& slot : page().slot) sum += slot.held_bytes[device].load(std::memory_order_relaxed);
  return sum;
}

bool TenantPage::Fits(int device, uint64_t size_bytes, uint64_t limit_bytes) const {
  const uint64_t held = HeldBytes(device);
  return held <= limit_bytes && size_bytes <= limit_bytes - held;
}

bool TenantPage::Reserve(int device, uint64_t size_bytes, uint64_t limit_bytes) {
  const std::lock_guard lock(mutex_);
  const FileLock file_lock(fd_.get());
  if (!Fits(device, size_bytes, limit_bytes)) {
    ForgetDeadOwners();
    if (!Fits(device, size_bytes, limit_bytes)) return false;
  }
  slot_->held_bytes[device].fetch_add(size_bytes);
  return true;
}

void TenantPage::Add(int device, uint64_t size_bytes) { slot_->held_bytes[device].fetch_add(size_bytes); }

void TenantPage::Return(int device, uint64_t size_bytes) { slot_->held_bytes[device].fetch_sub(size_bytes); }

Result<std::shared_ptr<TenantPage>> TenantPages::Open(const std::string& name) {
  const std::lock_guard lock(mutex_);
  std::erase_if(pages_, [](const auto& entry) { return entry.second.expired(); });
  if (const auto known = pages_.find(name); known != pages_.end()) {
    if (auto page = known->second.lock()) return page;
  }
  if (!directory_.empty() && ::mkdir(directory_.c_str(), 0700) != 0 && errno != EEXIST) {
    return std::unexpected(StatusFromErrno(errno, fmt::format("make directory '{}'", directory_)));
  }
  auto opened = TenantPage::Open(directory_.empty() ? "" : directory_ + "/" + name);
  if (!opened) return std::unexpected(opened.error());
  std::shared_ptr<TenantPage> page = std::move(*opened);
  pages_[name] = page;
  return page;
}

}  // namespace tally::server
