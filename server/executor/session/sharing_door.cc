#include "server/executor/session/sharing_door.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <span>

#include "base/log.h"
#include "base/thread.h"
#include "base/unix_socket.h"
#include "proto/control/sharing_door_abi.h"

namespace tally::server {
namespace {

// Who connects has its request at hand.
constexpr std::chrono::milliseconds kRequestPatience{1000};
// When there are no descriptors left.
constexpr std::chrono::milliseconds kPause{100};

bool IsRequest(const control::DoorRequest& request) {
  return request.magic == control::kDoorMagic && request.version == control::kDoorVersion &&
         std::memchr(request.owner, '\0', sizeof(request.owner)) != nullptr;
}

}  // namespace

Status SharingDoor::Open() {
  const std::string path = doors_.PathOf(static_cast<uint32_t>(::getpid()));
  end_ = UniqueFd(::eventfd(0, EFD_CLOEXEC));
  if (!end_.valid()) return StatusFromErrno(errno, "eventfd");
  auto listening = ListenUnix(path, 0600);
  if (!listening) return listening.error();
  listening_ = std::move(*listening);
  auto thread = StartThread("door", [this] { Serve(); });
  if (!thread) {
    listening_.Reset();
    return thread.error();
  }
  thread_ = std::move(*thread);
  return OkStatus();
}

void SharingDoor::Close() {
  if (!thread_.joinable()) return;
  const uint64_t one = 1;
  (void)!::write(end_.get(), &one, sizeof(one));
  thread_.join();
  listening_.Reset();
  ::unlink(doors_.PathOf(static_cast<uint32_t>(::getpid())).c_str());
}

void SharingDoor::Serve() {
  for (;;) {
    pollfd waiting[] = {{listening_.get(), POLLIN, 0}, {end_.get(), POLLIN, 0}};
    if (::poll(waiting, 2, -1) < 0) continue;
    if (waiting[1].revents != 0) return;
    const auto connection = AcceptUnix(listening_.get());
    if (connection) {
      Answer(connection->get());
    } else {
      ::poll(&waiting[1], 1, static_cast<int>(kPause.count()));
    }
  }
}

void SharingDoor::Answer(int connection) const {
  const auto peer = GetPeerCredentials(connection);
  if (!peer || peer->uid != ::geteuid()) return;
  const auto message = ReceiveMessage(connection, kRequestPatience);
  control::DoorRequest request{};
  if (!message || message->bytes.size() != sizeof(request)) return;
  std::memcpy(&request, message->bytes.data(), sizeof(request));
  if (!IsRequest(request)) return;
  control::DoorReply reply{control::kDoorMagic, control::kDoorVersion, CUDA_ERROR_INVALID_VALUE, 0, 0, {}, {}};
  SharedDriverHandle handle;
  if (doors_.owner == request.owner) {
    const auto object = shared_.ForOthers(request.name);
    if (object) {
      handle = object->handle;
      reply.cuda_result = handle != nullptr ? CUDA_SUCCESS : CUDA_ERROR_NOT_SUPPORTED;
      reply.device = static_cast<uint32_t>(object->device);
      reply.size_bytes = object->size_bytes;
      reply.properties = object->properties;
    }
  } else {
    LOG_WARNING("executor {} asks for another owner's object", peer->pid);
  }
  if (handle != nullptr) std::memcpy(reply.handle, handle->bytes.data(), sizeof(reply.handle));
  const int descriptor = handle != nullptr ? handle->descriptor.get() : -1;
  const std::span<const int> fds = descriptor >= 0 ? std::span(&descriptor, 1) : std::span<const int>();
  (void)SendMessage(connection, std::as_bytes(std::span(&reply, 1)), fds);
}

}  // namespace tally::server
