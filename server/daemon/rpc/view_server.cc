#include "server/daemon/rpc/view_server.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <grpcpp/server_builder.h>
#include <grpcpp/server_posix.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <thread>

#include "base/thread.h"
#include "base/unix_socket.h"
#include "server/daemon/peer_facts.h"
#include "server/daemon/rpc/view_service.h"

namespace tally::server {
namespace {

// That the kernel shows for users which are none in tallyd's namespace: many may be behind it.
constexpr uid_t kOverflowUid = 65534;
constexpr std::chrono::minutes kLongestIdle{5};
// Whoever does not read what he asked for is hung up on: he keeps a thread waiting. A trace takes a minute at most.
constexpr std::chrono::minutes kLongestConnection{5}, kLastCalls{2};
constexpr int kMostCalls = 8;  // of a connection at a time, each of which has a thread

// A stream, as gRPC speaks; base/unix_socket.h has messages.
Result<UniqueFd> ListenToStreams(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof(address.sun_path)) {
    return Error(StatusCode::kInvalidArgument, fmt::format("socket path '{}' is too long", path));
  }
  path.copy(address.sun_path, path.size());
  ::unlink(path.c_str());  // the runtime directory is locked: nobody serves it
  UniqueFd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd.valid() || ::bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0 ||
      ::chmod(path.c_str(), 0666) != 0 || ::listen(fd.get(), SOMAXCONN) != 0) {
    return std::unexpected(StatusFromErrno(errno, fmt::format("listen at '{}'", path)));
  }
  return fd;
}

// Who is at the other end of which connection. Thread-safe.
class Viewers {
 public:
  // False: there are too many.
  bool Note(const std::string& name, int fd, uid_t uid) {
    const std::lock_guard lock(mutex_);
    // Ours of a pair: it says when the connection has ended, whoever ends it.
    std::erase_if(viewers_, [](const auto& entry) { return PeerHungUp(entry.second.connection.get()); });
    const auto num_of_user =
        std::ranges::count_if(viewers_, [uid](const auto& entry) { return entry.second.uid == uid; });
    if (viewers_.size() >= ViewServer::kMostConnections ||
        static_cast<size_t>(num_of_user) >= ViewServer::kMostConnectionsPerUser) {
      return false;
    }
    UniqueFd connection(::fcntl(fd, F_DUPFD_CLOEXEC, 0));
    if (!connection.valid()) return false;
    viewers_.insert_or_assign(name, Viewer{uid, std::move(connection)});
    return true;
  }
  std::optional<uid_t> Find(const std::string& name) const {
    const std::lock_guard lock(mutex_);
    const auto found = viewers_.find(name);
    return found != viewers_.end() ? std::optional(found->second.uid) : std::nullopt;
  }

 private:
  struct Viewer {
    uid_t uid;
    UniqueFd connection;
  };
  mutable std::mutex mutex_;
  std::map<std::string, Viewer> viewers_;  // by gRPC's name; guarded by mutex_
};

class RunningViewServer final : public ViewServer {
 public:
  RunningViewServer(ControlDesk& desk, bool shows_totals)
      : service_(desk, shows_totals,
                 [this](const grpc::ServerContext& context) { return viewers_.Find(context.peer()); }),
        stop_(::eventfd(0, EFD_CLOEXEC)) {}
  ~RunningViewServer() override {
    const uint64_t one = 1;
    (void)!::write(stop_.get(), &one, sizeof(one));
    if (acceptor_.joinable()) acceptor_.join();
    if (server_ != nullptr) server_->Shutdown(std::chrono::system_clock::now() + std::chrono::seconds(1));
  }

  Status Listen(const std::string& socket_path) {
    auto listening = ListenToStreams(socket_path);
    if (!listening) return listening.error();
    listening_ = std::move(*listening);
    grpc::ServerBuilder builder;
    builder.SetSyncServerOption(grpc::ServerBuilder::NUM_CQS, 1);
    builder.SetSyncServerOption(grpc::ServerBuilder::MIN_POLLERS, 1);
    builder.SetSyncServerOption(grpc::ServerBuilder::MAX_POLLERS, 2);
    builder.SetMaxReceiveMessageSize(4096);  // requests are a few bytes
    const auto milliseconds = [](std::chrono::minutes time) {
      return static_cast<int>(time / std::chrono::milliseconds(1));
    };
    builder.AddChannelArgument(GRPC_ARG_MAX_CONNECTION_IDLE_MS, milliseconds(kLongestIdle));
    builder.AddChannelArgument(GRPC_ARG_MAX_CONNECTION_AGE_MS, milliseconds(kLongestConnection));
    builder.AddChannelArgument(GRPC_ARG_MAX_CONNECTION_AGE_GRACE_MS, milliseconds(kLastCalls));
    builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, kMostCalls);
    builder.RegisterService(&service_);
    server_ = builder.BuildAndStart();
    if (server_ == nullptr) return Status(StatusCode::kUnavailable, "cannot serve '" + socket_path + "'");
    auto acceptor = StartThread("view", [this] { Accept(); });
    if (!acceptor) return acceptor.error();
    acceptor_ = std::move(*acceptor);
    return OkStatus();
  }

 private:
  void Accept() {
    for (;;) {
      pollfd polled[] = {{listening_.get(), POLLIN, 0}, {stop_.get(), POLLIN, 0}};
      if (::poll(polled, 2, -1) < 0) continue;
      if (polled[1].revents != 0) return;
      const int fd = ::accept4(listening_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
      if (fd < 0) {
        std::this_thread::sleep_for(std::chrono::milliseconds(10));  // no descriptor is left, or the peer has gone
        continue;
      }
      UniqueFd connection(fd);
      if (IsWelcome(connection)) grpc::AddInsecureChannelFromFd(server_.get(), connection.Release());
    }
  }

  bool IsWelcome(const UniqueFd& connection) {
    const auto peer = GetPeerCredentials(connection.get());
    if (!peer || peer->uid == kOverflowUid) return false;
    // Root of a container is whoever runs it, not the machine's.
    if (peer->uid == 0 && !IsRootOfTheMachine(connection.get(), *peer)) return false;
    return viewers_.Note(fmt::format("fd:{}", connection.get()), connection.get(), peer->uid);
  }

  Viewers viewers_;
  ViewService service_;
  UniqueFd stop_;
  UniqueFd listening_;
  std::unique_ptr<grpc::Server> server_;
  std::thread acceptor_;
};

}  // namespace

Result<std::unique_ptr<ViewServer>> ViewServer::Start(const std::string& socket_path, ControlDesk& desk,
                                                      bool shows_totals) {
  auto server = std::make_unique<RunningViewServer>(desk, shows_totals);
  if (const Status listening = server->Listen(socket_path); !listening.ok()) return std::unexpected(listening);
  return server;
}

}  // namespace tally::server
