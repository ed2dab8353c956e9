#include "server/executor/mirror/mirror.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <new>
#include <thread>

#include "base/futex.h"
#include "base/unix_socket.h"
#include "server/executor/mirror/mirror_process.h"

namespace tally::server {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr milliseconds kLongestParcel{10'000};
constexpr milliseconds kBetweenLooks{1};
constexpr int kSpins = 200;
constexpr microseconds kNap{20};

// The page and the socket become descriptors 3 and 4 of the process; no other of ours does.
Result<pid_t> Spawn(const MirrorOptions& options, int page, int socket) {
  const std::string device = std::to_string(options.device);
  const std::string choice = std::to_string(static_cast<int>(options.libraries.choice));
  const std::array<const char*, kNumMirrorArguments + 1> arguments = {"tally-mirror",
                                                                      kMirrorFlag,
                                                                      device.c_str(),
                                                                      choice.c_str(),
                                                                      options.libraries.cuda_path.c_str(),
                                                                      options.libraries.sim_path.c_str(),
                                                                      nullptr};
  posix_spawn_file_actions_t files;
  posix_spawnattr_t attributes;
  ::posix_spawn_file_actions_init(&files);
  ::posix_spawnattr_init(&attributes);
  // What dup2 makes is inherited.
  ::posix_spawn_file_actions_adddup2(&files, page, kMirrorPageFd);
  ::posix_spawn_file_actions_adddup2(&files, socket, kMirrorSocketFd);
  ::posix_spawn_file_actions_addclosefrom_np(&files, kMirrorSocketFd + 1);
  sigset_t none, all;
  ::sigemptyset(&none);
  ::sigfillset(&all);
  ::posix_spawnattr_setsigmask(&attributes, &none);
  ::posix_spawnattr_setsigdefault(&attributes, &all);
  ::posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
  pid_t pid = 0;
  const int error = ::posix_spawn(&pid, options.program.c_str(), &files, &attributes,
                                  const_cast<char* const*>(arguments.data()), environ);
  ::posix_spawnattr_destroy(&attributes);
  ::posix_spawn_file_actions_destroy(&files);
  if (error != 0) return std::unexpected(StatusFromErrno(error, fmt::format("start '{}'", options.program)));
  return pid;
}

}  // namespace

Result<std::unique_ptr<Mirror>> Mirror::Start(const MirrorOptions& options) {
  auto file = CreateSealedMemfd("tally-mirror", sizeof(shm::MirrorPage));
  if (!file) return std::unexpected(file.error());
  auto region = MappedRegion::Map(file->get(), sizeof(shm::MirrorPage));
  if (!region) return std::unexpected(region.error());
  auto* const page = new (region->data()) shm::MirrorPage;
  page->header.magic = shm::kMirrorMagic;
  page->header.version = shm::kMirrorVersion;
  auto sockets = CreateSocketPair();
  if (!sockets) return std::unexpected(sockets.error());
  std::unique_ptr<Mirror> mirror(new Mirror(std::move(*region), std::move(sockets->first)));
  // Past the two numbers that they get there: either could be the other's.
  const UniqueFd page_fd(::fcntl(file->get(), F_DUPFD_CLOEXEC, kMirrorSocketFd + 1));
  UniqueFd socket_fd(::fcntl(sockets->second.get(), F_DUPFD_CLOEXEC, kMirrorSocketFd + 1));
  if (!page_fd.valid() || !socket_fd.valid()) return std::unexpected(StatusFromErrno(errno, "duplicate a descriptor"));
  const auto pid = Spawn(options, page_fd.get(), socket_fd.get());
  if (!pid) return std::unexpected(pid.error());
  mirror->pid_ = *pid;
  // The process's end of the socket is the last: when it goes, that is seen.
  sockets->second.Reset();
  socket_fd.Reset();
  if (Status status = mirror->AwaitReady(options.longest_start); !status.ok()) {
    return std::unexpected(status.With(fmt::format("mirror on GPU {}", options.device)));
  }
  return mirror;
}

Mirror::~Mirror() { End(); }

void Mirror::End() {
  if (error_ == CUDA_SUCCESS) error_ = CUDA_ERROR_DEVICE_UNAVAILABLE;
  if (pid_ == 0) return;
  // At once: the driver ends the work of a process that is gone.
  ::kill(pid_, SIGKILL);
  ::waitpid(pid_, nullptr, 0);
  pid_ = 0;
}

Status Mirror::AwaitReady(milliseconds limit) {
  const auto end = steady_clock::now() + limit;
  while (page().header.state.load(std::memory_order_acquire) != shm::MirrorState::kReady) {
    if (error() != CUDA_SUCCESS) return Status(StatusCode::kUnavailable, fmt::format("error {}", int{error_}));
    if (steady_clock::now() > end) return Status(StatusCode::kDeadlineExceeded, "it does not start");
    std::this_thread::sleep_for(kBetweenLooks);
  }
  return OkStatus();
}

CUresult Mirror::error() {
  if (error_ != CUDA_SUCCESS) return error_;
  if (const uint32_t said = page().header.error.load(std::memory_order_acquire); said != 0) {
    // Whatever it says, it is broken, and by an error that a program may see.
    return error_ = said < CUDA_ERROR_UNKNOWN ? static_cast<CUresult>(said) : CUDA_ERROR_UNKNOWN;
  }
  const auto now = steady_clock::now();
  if (now - last_look_ < kBetweenLooks) return CUDA_SUCCESS;
  last_look_ = now;
  if (PeerHungUp(socket_.get())) error_ = CUDA_ERROR_DEVICE_UNAVAILABLE;
  return error_;
}

bool Mirror::IsDone(uint64_t position) {
  if (position >= next_) return false;
  // A slot that was given to a later command had been waited for.
  if (position + shm::kMirrorSlots < next_) return true;
  const uint32_t done = page().slot[position % shm::kMirrorSlots].done.load(std::memory_order_acquire);
  return done == static_cast<uint32_t>(position + 1) || error() != CUDA_SUCCESS;
}

CUresult Mirror::Wait(uint64_t position) {
  for (int looks = 0; !IsDone(position); ++looks) {
    if (position >= next_) return CUDA_ERROR_INVALID_VALUE;
    if (looks < kSpins) {
      CpuRelax();
    } else {
      std::this_thread::sleep_for(kNap);
    }
  }
  if (error() != CUDA_SUCCESS) return error_;
  if (position + shm::kMirrorSlots < next_) return CUDA_SUCCESS;
  const uint32_t result = page().slot[position % shm::kMirrorSlots].result.load(std::memory_order_relaxed);
  return result <= CUDA_ERROR_UNKNOWN ? static_cast<CUresult>(result) : CUDA_ERROR_UNKNOWN;
}

std::expected<uint64_t, CUresult> Mirror::Post(const shm::MirrorCommand& command, std::span<const std::byte> bytes,
                                               int fd) {
  if (bytes.size() > shm::kMirrorBytes) return std::unexpected(CUDA_ERROR_INVALID_VALUE);
  const uint64_t position = next_;
  if (position >= shm::kMirrorSlots) Wait(position - shm::kMirrorSlots);
  if (error() != CUDA_SUCCESS) return std::unexpected(error_);
  if (fd >= 0) {
    const shm::MirrorParcel parcel{position};
    const int fds[] = {fd};
    if (!SendMessage(socket_.get(), std::as_bytes(std::span(&parcel, 1)), fds).ok()) {
      error_ = CUDA_ERROR_DEVICE_UNAVAILABLE;
      return std::unexpected(error_);
    }
  }
  shm::MirrorSlot& slot = page().slot[position % shm::kMirrorSlots];
  slot.result.store(CUDA_SUCCESS, std::memory_order_relaxed);
  slot.command = command;
  std::ranges::copy(bytes, std::as_writable_bytes(std::span(slot.bytes)).begin());
  ++next_;
  page().header.num_posted.store(static_cast<uint32_t>(next_), std::memory_order_release);
  FutexWake(page().header.num_posted, 1);
  return position;
}

CUresult Mirror::Do(const shm::MirrorCommand& command, std::span<const std::byte> bytes, int fd) {
  const auto position = Post(command, bytes, fd);
  return position ? Wait(*position) : position.error();
}

Result<UniqueFd> Mirror::TakeParcel(uint64_t position) {
  auto message = ReceiveMessage(socket_.get(), kLongestParcel);
  shm::MirrorParcel parcel{};
  if (message && message->bytes.size() == sizeof parcel && message->fds.size() == 1) {
    std::memcpy(&parcel, message->bytes.data(), sizeof parcel);
    if (parcel.position == position) return std::move(message->fds[0]);
  }
  // One that sends something else, or nothing, does what was not agreed.
  if (error() == CUDA_SUCCESS) error_ = CUDA_ERROR_DEVICE_UNAVAILABLE;
  return Error(StatusCode::kUnavailable, "the mirror does not send what it made");
}

}  // namespace tally::server
