#include "client-shim/transport/session.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sched.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <span>
#include <thread>

#include "base/log.h"
#include "base/unix_socket.h"
#include "client-shim/transport/hello.h"
#include "proto/control/socket_paths.h"
#include "proto/driver/generated/wire_ops.h"

namespace tally::client_shim {

constinit std::atomic<Session*> g_session{nullptr};

namespace {

// tallyd may have to start an executor, which loads a driver and creates a context, before it answers.
constexpr auto kHelloTimeout = std::chrono::seconds(60);
constexpr auto kSessionTimeout = std::chrono::seconds(30);
// How often another address is tried when the one offered is taken here.
constexpr int kMaxAddressTries = 16;
// tallyd learns within milliseconds that an executor is lost; by then it may have given it one more session.
constexpr int kMaxConnectTries = 5;
constexpr auto kConnectPause = std::chrono::milliseconds(20);

unsigned CountCpus() {
  cpu_set_t set;
  if (::sched_getaffinity(0, sizeof(set), &set) != 0) return 1;
  return static_cast<unsigned>(CPU_COUNT(&set));
}

template <typename T>
std::span<const std::byte> BytesOf(const T& message) {
  return std::as_bytes(std::span<const T, 1>(&message, 1));
}

CUresult ResultOfRefusal(uint32_t status_code) {
  switch (static_cast<StatusCode>(status_code)) {
    case StatusCode::kPermissionDenied:
      return CUDA_ERROR_NOT_PERMITTED;
    case StatusCode::kFailedPrecondition:
      return CUDA_ERROR_SYSTEM_DRIVER_MISMATCH;
    case StatusCode::kResourceExhausted:
      return CUDA_ERROR_OUT_OF_MEMORY;
    default:
      return CUDA_ERROR_SYSTEM_NOT_READY;
  }
}

// 0 if the descriptor is not a socket. Numbers of sockets are not reused while one is open.
uint64_t InodeOfSocket(int fd) {
  struct stat state {};
  return ::fstat(fd, &state) == 0 && S_ISSOCK(state.st_mode) ? state.st_ino : 0;
}

}  // namespace

CUresult Session::Connect(Session** session, std::string* sentence) {
  for (int attempt = 1;; ++attempt) {
    bool is_lost = false;
    const CUresult result = ConnectOnce(session, sentence, &is_lost);
    if (!is_lost || attempt == kMaxConnectTries) return result;
    std::this_thread::sleep_for(attempt * kConnectPause);
  }
}

CUresult Session::ConnectOnce(Session** session, std::string* sentence, bool* is_lost) {
  UniqueFd daemon;
  std::string tried;
  for (const std::string& path : control::SocketsToTry()) {
    auto connected = ConnectUnix(path);
    if (connected) {
      daemon = std::move(*connected);
      break;
    }
    if (connected.error().code() == StatusCode::kDeadlineExceeded) {
      *sentence = fmt::format("the Tally daemon is there and takes nobody: {}", connected.error().message());
      return CUDA_ERROR_SYSTEM_NOT_READY;
    }
    tried += (tried.empty() ? "" : ", ") + path;
  }
  if (!daemon.valid()) {
    *sentence = fmt::format(
        "no Tally daemon listens on {}: start one with 'tallyd', or run the program with 'tally-run --embedded'",
        tried);
    return CUDA_ERROR_SYSTEM_NOT_READY;
  }

  shm::HelloRequest hello{};
  if (!MakeHello(&hello, sentence)) return CUDA_ERROR_SYSTEM_NOT_READY;
  if (const Status sent = SendMessage(daemon.get(), BytesOf(hello)); !sent.ok()) {
    *sentence = fmt::format("tallyd does not take our hello: {}", sent.message());
    return CUDA_ERROR_SYSTEM_NOT_READY;
  }
  auto received = ReceiveMessage(daemon.get(), kHelloTimeout);
  if (!received || received->bytes.size() != sizeof(shm::HelloReply)) {
    *sentence = fmt::format("tallyd does not answer our hello: {}",
                            received ? "its reply has another size, so it is of another version"
                                     : std::string_view(received.error().message()));
    return received ? CUDA_ERROR_SYSTEM_DRIVER_MISMATCH : CUDA_ERROR_SYSTEM_NOT_READY;
  }
  shm::HelloReply reply;
  std::memcpy(&reply, received->bytes.data(), sizeof(reply));
  if (reply.magic != shm::kHelloMagic || reply.protocol_version != shm::kProtocolVersion) {
    *sentence =
        fmt::format("tallyd speaks protocol version {}, this libcuda.so.1 speaks {}: install both from one build",
                    reply.protocol_version, shm::kProtocolVersion);
    return CUDA_ERROR_SYSTEM_DRIVER_MISMATCH;
  }
  if (reply.api_table_hash != kApiTableHash) {
    *sentence = fmt::format(
        "tallyd has table {:016x} of the driver API, this libcuda.so.1 has {:016x}: install both from one build",
        reply.api_table_hash, kApiTableHash);
    return CUDA_ERROR_SYSTEM_DRIVER_MISMATCH;
  }
  reply.error[sizeof(reply.error) - 1] = '\0';
  if (reply.status_code != 0 || received->fds.size() != 1) {
    *sentence = fmt::format("tallyd refuses: {}", reply.status_code != 0 ? reply.error : "it sent no session socket");
    return ResultOfRefusal(reply.status_code);
  }

  std::unique_ptr<Session> created(new Session(CountCpus()));
  created->socket_ = std::move(received->fds[0]);
  created->socket_inode_ = InodeOfSocket(created->socket_.get());
  created->id_ = reply.session_id;
  if (const CUresult result = created->Attach(sentence); result != CUDA_SUCCESS) {
    *is_lost = PeerHungUp(created->socket_.get());
    return result;
  }
  *session = created.release();
  return CUDA_SUCCESS;
}

CUresult Session::Attach(std::string* sentence) {
  shm::SessionRequest request{};
  request.kind = static_cast<uint32_t>(shm::SessionRequestKind::kAttach);
  shm::SessionReply reply{};
  UniqueFd fd;
  const CUresult result = Ask(request, &reply, &fd);
  if (result != CUDA_SUCCESS || !fd.valid() || reply.value[0] < sizeof(shm::SessionHeader)) {
    *sentence = fmt::format("the executor does not accept this session (CUDA error {})", static_cast<int>(result));
    return result != CUDA_SUCCESS ? result : CUDA_ERROR_SYSTEM_NOT_READY;
  }
  auto region = MappedRegion::Map(fd.get(), reply.value[0]);
  if (!region) {
    *sentence = region.error().message();
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  region_ = std::move(*region);
  wants_ptx_ = (reply.value[1] & shm::kWantsPtx) != 0;
  wants_declarations_ = (reply.value[1] & shm::kWantsDeclarations) != 0;
  wants_tasks_ = (reply.value[1] & shm::kWantsTasks) != 0;
  takes_arrivals_ = (reply.value[1] & shm::kTakesArrivals) != 0 && region_.size_bytes() >= shm::kSessionRegionBytes;
  header_ = reinterpret_cast<shm::SessionHeader*>(region_.data());
  if (header_->magic != shm::kSessionMagic || header_->protocol_version != shm::kProtocolVersion) {
    *sentence = fmt::format("the executor speaks protocol version {}, this libcuda.so.1 speaks {}",
                            header_->protocol_version, shm::kProtocolVersion);
    return CUDA_ERROR_SYSTEM_DRIVER_MISMATCH;
  }
  return CUDA_SUCCESS;
}

CUresult Session::Ask(const shm::SessionRequest& request, shm::SessionReply* reply, UniqueFd* fd, int sent_fd) {
  const std::lock_guard lock(mutex_);
  if (!HasSocket()) {
    DeclareGone("the program has closed our socket");
    return kExecutorGone;
  }
  // A reply may bring a descriptor. Where there is no room for one, not asking leaves nothing to be taken back.
  UniqueFd room(::fcntl(socket_.get(), F_DUPFD_CLOEXEC, 0));
  if (!room.valid()) {
    LOG_ERROR("this process has no file descriptor left: a thread or an allocation needs one for a moment");
    return CUDA_ERROR_OPERATING_SYSTEM;
  }
  const auto fds = sent_fd >= 0 ? std::span<const int>(&sent_fd, 1) : std::span<const int>();
  if (!SendMessage(socket_.get(), BytesOf(request), fds).ok()) {
    DeclareGone("its socket is closed");
    return kExecutorGone;
  }
  room.Reset();
  auto received = ReceiveMessage(socket_.get(), kSessionTimeout);
  if (!received && received.error().code() == StatusCode::kResourceExhausted) {
    LOG_ERROR("a reply of the executor: {}", received.error().message());
    return CUDA_ERROR_OPERATING_SYSTEM;
  }
  if (!received || received->bytes.size() != sizeof(*reply)) {
    // A reply that comes too late would be taken for the next one's: the session is over either way.
    DeclareGone(received ? "a reply on its socket has the wrong size" : "it does not answer on its socket");
    return kExecutorGone;
  }
  std::memcpy(reply, received->bytes.data(), sizeof(*reply));
  if (!received->fds.empty()) *fd = std::move(received->fds[0]);
  return static_cast<CUresult>(reply->cuda_result);
}

CUresult Session::TakeChannel(Channel** channel) {
  {
    const std::lock_guard lock(channels_mutex_);
    if (!free_channels_.empty()) {
      *channel = free_channels_.back();
      free_channels_.pop_back();
      return CUDA_SUCCESS;
    }
  }
  shm::SessionRequest request{};
  request.kind = static_cast<uint32_t>(shm::SessionRequestKind::kOpenChannel);
  shm::SessionReply reply{};
  UniqueFd fd;
  if (const CUresult result = Ask(request, &reply, &fd); result != CUDA_SUCCESS) {
    LOG_ERROR("no channel for another thread: the executor answers CUDA error {}", static_cast<int>(result));
    return result;
  }
  const uint64_t size = reply.value[0];
  if (!fd.valid() || size < shm::kChannelRegionBytes) return CUDA_ERROR_OUT_OF_MEMORY;
  auto region = MappedRegion::Map(fd.get(), size);
  if (!region) return CUDA_ERROR_OUT_OF_MEMORY;
  const auto* header = reinterpret_cast<const shm::ChannelHeader*>(region->data());
  const auto fits = [size](uint64_t offset, uint64_t bytes) { return offset <= size && bytes <= size - offset; };
  if (header->magic != shm::kChannelMagic || !fits(header->request_offset, header->request_bytes) ||
      !fits(header->reply_offset, header->reply_bytes) || header->request_bytes != shm::kRequestRingBytes ||
      header->reply_bytes != shm::kReplyRingBytes || header->arena_chunk_bytes != shm::kArenaChunkBytes ||
      header->arena_chunks != shm::kArenaChunks ||
      !fits(header->arena_offset, uint64_t{shm::kArenaChunkBytes} * shm::kArenaChunks)) {
    DeclareGone("its channel has another layout");
    return kExecutorGone;
  }
  *channel = new Channel(this, std::move(*region), static_cast<uint32_t>(reply.value[1]));
  return CUDA_SUCCESS;
}

void Session::ReturnChannel(Channel* channel) {
  const std::lock_guard lock(channels_mutex_);
  free_channels_.push_back(channel);
}

CUresult Session::AllocateHost(size_t size_bytes, int server_device, shm::HostMemoryUse use, HostMemory* memory) {
  for (int attempt = 0; attempt < kMaxAddressTries; ++attempt) {
    shm::SessionRequest request{};
    request.kind = static_cast<uint32_t>(shm::SessionRequestKind::kAllocateHost);
    request.value[0] = size_bytes;
    request.value[1] = static_cast<uint64_t>(server_device);
    request.value[2] = static_cast<uint64_t>(use);
    shm::SessionReply reply{};
    UniqueFd fd;
    if (const CUresult result = Ask(request, &reply, &fd); result != CUDA_SUCCESS) return result;
    if (!fd.valid() || reply.value[1] < size_bytes) return CUDA_ERROR_OUT_OF_MEMORY;
    auto* address = reinterpret_cast<void*>(reply.value[0]);
    auto mapped = MappedRegion::MapAt(fd.get(), reply.value[1], address);
    if (mapped) {
      *memory = {address, reply.value[1]};
      mapped->Leak();  // belongs to the address map now
      return CUDA_SUCCESS;
    }
    const StatusCode code = mapped.error().code();
    shm::SessionRequest reject{};
    reject.kind = static_cast<uint32_t>(shm::SessionRequestKind::kRejectHost);
    reject.value[0] = reply.value[0];
    if (const CUresult result = Ask(reject, &reply, &fd); result != CUDA_SUCCESS) return result;
    if (code != StatusCode::kAlreadyExists) return CUDA_ERROR_OUT_OF_MEMORY;
  }
  LOG_ERROR("shared host memory: {} addresses in a row are taken in this process", kMaxAddressTries);
  return CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult Session::RegisterHost(int fd, uint64_t offset_bytes, uint64_t address, uint64_t size_bytes, int server_device,
                               uint64_t* server_address) {
  shm::SessionRequest request{};
  request.kind = static_cast<uint32_t>(shm::SessionRequestKind::kRegisterHost);
  request.device = static_cast<uint32_t>(server_device);
  request.value[0] = address;
  request.value[1] = size_bytes;
  request.value[2] = offset_bytes;
  shm::SessionReply reply{};
  UniqueFd none;
  const CUresult result = Ask(request, &reply, &none, fd);
  *server_address = reply.value[0];
  return result;
}

shm::ArrivalPage* Session::OpenArrivals(const char** reason) {
  shm::SessionRequest request{};
  request.kind = static_cast<uint32_t>(shm::SessionRequestKind::kOpenArrivals);
  shm::SessionReply reply{};
  UniqueFd none;
  *reason = "tallyd's executor is of an older version";
  if (!takes_arrivals_) return nullptr;
  const CUresult result = Ask(request, &reply, &none);
  if (result == CUDA_SUCCESS) return reinterpret_cast<shm::ArrivalPage*>(region_.data() + shm::kArrivalOffset);
  *reason = result == CUDA_ERROR_NOT_SUPPORTED
                ? "they are of high-priority programs that share no context with best-effort ones"
                : "the executor has no thread for them";
  return nullptr;
}

bool Session::CheckGone() {
  if (gone_.load(std::memory_order_relaxed) != 0) return true;
  const bool has_socket = HasSocket();
  if (has_socket && !PeerHungUp(socket_.get())) return false;
  DeclareGone(has_socket ? "it has ended" : "the program has closed our socket");
  return true;
}

void Session::DeclareGone(const char* reason) {
  // Before it took the session there is nothing to lose: Connect has its own sentence.
  if (gone_.exchange(kExecutorGone) == 0 && header_ != nullptr)
    LOG_ERROR("session {}: the executor is lost ({}); every CUDA call returns error {} from now on", id_, reason,
              static_cast<int>(kExecutorGone));
}

bool Session::HasSocket() const { return socket_inode_ != 0 && InodeOfSocket(socket_.get()) == socket_inode_; }

void Session::Close() {
  if (HasSocket())
    socket_.Reset();
  else
    static_cast<void>(socket_.Release());  // not ours to close any more
}

}  // namespace tally::client_shim
