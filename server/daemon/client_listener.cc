#include "server/daemon/client_listener.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/clock.h"
#include "base/log.h"
#include "proto/control/graph_figures.h"
#include "proto/control/window_mode.h"
#include "proto/driver/generated/wire_ops.h"
#include "scheduler/launch.h"
#include "scheduler/slo.h"
#include "scheduler/tuning.h"
#include "server/daemon/peer_facts.h"
#include "server/daemon/printable_name.h"

namespace tally::server {
namespace {

using std::chrono::steady_clock;

mode_t SocketMode(const DaemonConfig& config) { return OthersMayConnect(config) ? 0666 : 0600; }

// Of refusals, before the rest of the second is only counted.
constexpr uint64_t kMaxLoggedPerSecond = 20;

// Not blocking; a client that is gone meanwhile is no concern: its session closes with the descriptor.
void Reply(int socket, uint64_t session_id, const Status& status, int session_socket) {
  shm::HelloReply reply{};
  reply.magic = shm::kHelloMagic;
  reply.protocol_version = shm::kProtocolVersion;
  reply.api_table_hash = kApiTableHash;
  reply.session_id = session_id;
  reply.status_code = static_cast<uint32_t>(status.code());
  const std::string sentence = status.message().substr(0, sizeof(reply.error) - 1);
  std::memcpy(reply.error, sentence.data(), sentence.size());
  const int fds[] = {session_socket};
  const std::span<const int> passed = session_socket >= 0 ? std::span<const int>(fds) : std::span<const int>();
  (void)SendMessage(socket, std::as_bytes(std::span(&reply, 1)), passed);
}

Status NoSession(const PeerCredentials& peer) {
  return Status(StatusCode::kPermissionDenied,
                fmt::format("this tallyd runs for user {} and gives user {} no session: start your own (tallyd), or "
                            "have its owner allow you (--allow-uid {})",
                            ::geteuid(), peer.uid, peer.uid));
}

}  // namespace

ClientListener::ClientListener(EventLoop& loop, const DaemonConfig& config, ExecutorPool& pool, RuntimeDir& runtime_dir,
                               const GrantBook& grants)
    : loop_(loop), config_(config), pool_(pool), runtime_dir_(runtime_dir), grants_(grants) {}

Status ClientListener::Listen(const std::string& socket_path, std::optional<UniqueFd> activated) {
  Door& door = doors_[kCommonDoor];
  if (activated) {
    door.listening = std::move(*activated);
  } else {
    auto listening = ListenUnix(socket_path, SocketMode(config_));
    if (!listening) return listening.error();
    door = {std::move(*listening), socket_path};
  }
  return Watch(kCommonDoor);
}

Status ClientListener::OpenGrant(const Grant& grant, const std::string& socket_path) {
  // Who can reach it is for the directories to say.
  auto listening = ListenUnix(socket_path, 0666);
  if (!listening) return listening.error();
  doors_[grant.id] = {std::move(*listening), socket_path};
  const Status watched = Watch(grant.id);
  if (!watched.ok()) doors_.erase(grant.id);
  return watched;
}

Status ClientListener::Watch(uint64_t grant_id) {
  return loop_.Watch(doors_.at(grant_id).listening.get(), [this, grant_id] { OnConnection(grant_id); });
}

void ClientListener::CloseGrant(const Grant& grant, const Status& why) {
  const auto door = doors_.find(grant.id);
  if (door == doors_.end()) return;
  // Who is connecting hears it, too.
  for (int i = 0; i < SOMAXCONN && Accept(grant.id); ++i) continue;
  loop_.Unwatch(door->second.listening.get());
  ::unlink(door->second.own_path.c_str());
  doors_.erase(door);
  std::vector<uint64_t> ids;
  for (const auto& [id, pending] : pending_) {
    if (pending.grant_id == grant.id && !pending.is_refused) ids.push_back(id);
  }
  for (const uint64_t id : ids) {
    Pending& pending = pending_.at(id);
    Answer(pending, why);
    pending.is_refused = true;
    if (pending.has_said_hello) Drop(id);
  }
  std::erase_if(refusals_of_grants_, [&](const auto& each) { return each.first.first == grant.spec.tenant; });
}

void ClientListener::Reconfigure(const DaemonConfig& config) {
  config_ = config;
  if (OthersMayConnect(config)) runtime_dir_.LetOthersConnect();
  const std::string& path = doors_[kCommonDoor].own_path;
  if (!path.empty() && ::chmod(path.c_str(), SocketMode(config)) != 0) {
    LOG_WARNING("cannot change the mode of '{}': {}", path, std::strerror(errno));
  }
}

void ClientListener::StopListening() {
  for (const auto& [grant_id, door] : doors_) {
    loop_.Unwatch(door.listening.get());
    if (!door.own_path.empty()) ::unlink(door.own_path.c_str());
  }
  doors_.clear();
}

void ClientListener::OnConnection(uint64_t grant_id) {
  if (Accept(grant_id)) return;
  // Out of descriptors: the connection stays in the queue and the descriptor readable, so look away for a moment.
  loop_.Unwatch(doors_.at(grant_id).listening.get());
  loop_.PostDelayed(std::chrono::milliseconds(100), [this, grant_id] {
    if (doors_.contains(grant_id)) (void)Watch(grant_id);
  });
}

bool ClientListener::Accept(uint64_t grant_id) {
  const int listening = doors_.at(grant_id).listening.get();
  pollfd waiting{listening, POLLIN, 0};
  if (::poll(&waiting, 1, 0) <= 0) return false;
  auto socket = AcceptUnix(listening);
  if (!socket) {
    LOG_WARNING("cannot accept a client: {}", socket.error().message());
    return false;
  }
  const auto peer = GetPeerCredentials(socket->get());
  if (!peer || ::fcntl(socket->get(), F_SETFL, O_NONBLOCK) != 0) return true;
  // Nobody but its user gets to the socket of a private daemon.
  const bool is_private = config_.embedded_parent != 0;
  const Asker asker{peer->uid, is_private ? peer->uid == 0 : IsRootOfTheMachine(socket->get(), *peer), nullptr};
  const bool is_refused = grant_id == kCommonDoor && !MayHaveSessions(asker, ::geteuid(), config_);
  const SilentUser user = is_refused                ? kStrangers
                          : grant_id == kCommonDoor ? SilentUser{peer->uid, kCommonDoor}
                                                    : SilentUser{0, grant_id};
  MakeRoomFor(user);
  const uint64_t id = next_pending_id_++;
  const int fd = socket->get();
  const auto placed = pending_.emplace(id, Pending{std::move(*socket), *peer, grant_id, asker.is_root_of_the_machine,
                                                   user, steady_clock::now(), false, is_refused});
  silent_[user].insert(id);
  if (!loop_.Watch(fd, [this, id] { OnReadable(id); }).ok()) {
    Drop(id);
    return true;
  }
  if (is_refused) Answer(placed.first->second, NoSession(*peer));
  if (!is_timer_set_) {
    is_timer_set_ = true;
    loop_.PostDelayed(kHelloLimit, [this] { HangUpOnTheSilent(); });
  }
  return true;
}

// At most one is hung up on: of this user if it has too many, else of the one that has the most.
void ClientListener::MakeRoomFor(SilentUser user) {
  size_t num_silent = 0;
  auto most = silent_.begin();
  for (auto each = silent_.begin(); each != silent_.end(); ++each) {
    num_silent += each->second.size();
    if (each->second.size() > most->second.size()) most = each;
  }
  const auto own = silent_.find(user);
  const size_t limit = user == kStrangers ? kMaxSilentStrangers : kMaxSilentPerUser;
  const bool has_too_many = own != silent_.end() && own->second.size() >= limit;
  if (!has_too_many && num_silent < kMaxSilent) return;
  const uint64_t oldest = *(has_too_many ? own : most)->second.begin();
  OnReadable(oldest);  // what it has said may lie there unread
  const auto still_there = pending_.find(oldest);
  if (still_there == pending_.end() || still_there->second.has_said_hello) return;
  if (still_there->second.is_refused) return Drop(oldest);
  Refuse(oldest, Status(StatusCode::kResourceExhausted, "too many connections that say nothing"));
}

void ClientListener::HangUpOnTheSilent() {
  is_timer_set_ = false;
  const auto limit = steady_clock::now() - kHelloLimit;
  std::vector<uint64_t> silent;
  bool is_any_left = false;
  for (const auto& [id, pending] : pending_) {
    if (pending.has_said_hello) continue;
    if (pending.since <= limit) silent.push_back(id);
    is_any_left |= pending.since > limit;
  }
  for (const uint64_t id : silent) {
    if (pending_.at(id).is_refused) {
      Drop(id);
    } else {
      Refuse(id, Status(StatusCode::kDeadlineExceeded, "no hello in 5 s"));
    }
  }
  if (is_any_left) {
    is_timer_set_ = true;
    loop_.PostDelayed(kHelloLimit, [this] { HangUpOnTheSilent(); });
  }
}

void ClientListener::OnReadable(uint64_t pending_id) {
  Pending& pending = pending_.at(pending_id);
  const auto message = ReceiveMessage(pending.socket.get(), std::chrono::milliseconds(0));
  if (!message) {
    // The end of a connection that never said anything is how tally-run looks if we are there.
    if (message.error().code() != StatusCode::kDeadlineExceeded) Drop(pending_id);
    return;
  }
  if (pending.is_refused) return Drop(pending_id);
  if (pending.has_said_hello) return Refuse(pending_id, Status(StatusCode::kInvalidArgument, "a second hello"));
  pending.has_said_hello = true;
  NoLongerSilent(pending_id, pending);
  if (message->bytes.size() == sizeof(shm::TenantViewRequest)) {
    shm::TenantViewRequest request{};
    std::memcpy(&request, message->bytes.data(), sizeof(request));
    if (request.magic == shm::kViewMagic) return OnViewRequest(pending_id, request);
  }
  // The first three fields are the same in every version, so that any client can be told what is wrong.
  shm::HelloRequest hello{};
  std::memcpy(&hello, message->bytes.data(), std::min(message->bytes.size(), sizeof(hello)));
  if (message->bytes.size() < 8 || hello.magic != shm::kHelloMagic) {
    return Refuse(pending_id, Status(StatusCode::kInvalidArgument, "what connected does not speak Tally's protocol"));
  }
  if (message->bytes.size() != sizeof(hello) && hello.protocol_version == shm::kProtocolVersion) {
    return Refuse(pending_id, Status(StatusCode::kInvalidArgument, fmt::format("a hello of {} bytes instead of {}",
                                                                               message->bytes.size(), sizeof(hello))));
  }
  OnHello(pending_id, hello);
}

Status ClientListener::CheckBuild(const shm::HelloRequest& hello) const {
  if (hello.protocol_version != shm::kProtocolVersion) {
    return Status(StatusCode::kFailedPrecondition,
                  fmt::format("the client speaks protocol version {}, this tallyd version {}: use the client library "
                              "that was installed with this tallyd",
                              hello.protocol_version, shm::kProtocolVersion));
  }
  if (hello.api_table_hash != kApiTableHash) {
    return Status(StatusCode::kFailedPrecondition,
                  fmt::format("the client was built from driver table {:016x}, this tallyd from {:016x}: use the "
                              "client library that was installed with this tallyd",
                              hello.api_table_hash, kApiTableHash));
  }
  return OkStatus();
}

void ClientListener::OnHello(uint64_t pending_id, const shm::HelloRequest& hello) {
  const PeerCredentials peer = pending_.at(pending_id).peer;
  if (const Status build = CheckBuild(hello); !build.ok()) return Refuse(pending_id, build);
  const Grant* const grant = grants_.Find(pending_.at(pending_id).grant_id);
  // Never as if it had come by the common socket.
  if (grant == nullptr && pending_.at(pending_id).grant_id != kCommonDoor) {
    return Refuse(pending_id, Status(StatusCode::kPermissionDenied, "the grant of this socket was revoked"));
  }
  const Asker asker{peer.uid, pending_.at(pending_id).is_root_of_the_machine, grant != nullptr ? &grant->spec : nullptr,
                    runtime_dir_.TakeSessionId()};
  const auto placement = Place(hello, asker, config_, [this](const Domain& domain) { return pool_.ClassOf(domain); });
  if (!placement) return Refuse(pending_id, placement.error());
  auto pair = CreateSocketPair();
  if (!pair) return Refuse(pending_id, Status(StatusCode::kResourceExhausted, pair.error().message()));

  control::SessionIdentity identity{};
  identity.session_id = asker.session_id;
  identity.opened_ns = MonotonicNs();
  identity.pid = peer.pid;
  identity.uid = peer.uid;
  identity.gid = peer.gid;
  identity.priority_class = static_cast<uint32_t>(placement->session_class);
  if (hello.turnaround_ns != 0 && !scheduler::IsTurnaround(std::chrono::nanoseconds(hello.turnaround_ns))) {
    return Refuse(pending_id,
                  Status(StatusCode::kInvalidArgument,
                         fmt::format("a turnaround of {} ns: it is from 1 us to 1 s", hello.turnaround_ns)));
  }
  if (hello.window > static_cast<uint8_t>(control::WindowMode::kOn)) {
    return Refuse(pending_id, Status(StatusCode::kInvalidArgument, fmt::format("there is no window {}", hello.window)));
  }
  identity.window = hello.window;
  if (hello.graphs > static_cast<uint8_t>(control::GraphMode::kSpread)) {
    return Refuse(pending_id,
                  Status(StatusCode::kInvalidArgument, fmt::format("there is no mode of graphs {}", hello.graphs)));
  }
  identity.graphs = hello.graphs;
  identity.turnaround_ns = hello.turnaround_ns;
  if (hello.slo[0] != '\0') {
    const auto slo = scheduler::ParseSlo(PrintableName(hello.slo));
    if (!slo) return Refuse(pending_id, slo.error());
    if (placement->session_class != shm::PriorityClass::kHighPriority) {
      return Refuse(pending_id, Status(StatusCode::kInvalidArgument,
                                       "an objective (--slo) is for high-priority programs: say --priority high"));
    }
    identity.slo_latency_ns = static_cast<uint64_t>(slo->latency.count());
    identity.slo_percentile = slo->percentile;
  }
  identity.device_memory_bytes = placement->device_memory_bytes;
  identity.share_permille = placement->share_permille;
  identity.weight = placement->weight;
  identity.level = static_cast<uint16_t>(placement->level);
  identity.keeps_kernels = hello.keeps_kernels != 0 ? 1 : 0;
  identity.only_starts = hello.only_starts != 0 ? 1 : 0;
  std::string tenant = TenantName(hello.tenant_name);
  identity.owner_uid = control::kNobody;
  if (grant != nullptr) {
    if (const Status gpus = pool_.CheckGpus(grant->spec); !gpus.ok()) return Refuse(pending_id, gpus);
    tenant = grant->spec.tenant;
    identity.grant_id = grant->id;
    identity.owner_uid = grant->spec.owner_uid.value_or(control::kNobody);
    const std::string gpus = control::JoinedGpus(grant->spec.gpus);
    std::memcpy(identity.gpus, gpus.c_str(), std::min(gpus.size() + 1, sizeof(identity.gpus)));
  }
  std::memcpy(identity.tenant_name, tenant.c_str(), std::min(tenant.size() + 1, sizeof(identity.tenant_name) - 1));

  auto client_end = std::make_shared<UniqueFd>(std::move(pair->first));
  pool_.Open(placement->domain, identity, std::move(pair->second),
             [this, pending_id, identity, client_end](const Status& status) {
               if (!pending_.contains(pending_id)) return;  // gone meanwhile: both ends close
               if (!status.ok()) return Refuse(pending_id, status);
               LOG_INFO("session {}: {} (process {}, user {})", identity.session_id, identity.tenant_name, identity.pid,
                        identity.uid);
               Reply(pending_.at(pending_id).socket.get(), identity.session_id, status, client_end->get());
               Drop(pending_id);
             });
}

void ClientListener::Answer(const Pending& pending, const Status& why) {
  const std::string reason(StatusCodeName(why.code()));
  ++refusals_[reason];
  const Grant* const grant = grants_.Find(pending.grant_id);
  if (grant != nullptr) ++refusals_of_grants_[{grant->spec.tenant, reason}];
  Reply(pending.socket.get(), 0, why, -1);
  const auto now = steady_clock::now();
  if (now - log_second_ >= std::chrono::seconds(1)) {
    if (num_logged_ > kMaxLoggedPerSecond) {
      LOG_WARNING("refused {} more sessions within a second", num_logged_ - kMaxLoggedPerSecond);
    }
    log_second_ = now;
    num_logged_ = 0;
  }
  if (++num_logged_ > kMaxLoggedPerSecond) return;
  LOG_WARNING("refused a session to process {} of user {}{}: {}", pending.peer.pid, pending.peer.uid,
              grant != nullptr ? fmt::format(", tenant '{}'", grant->spec.tenant) : "", why.message());
}

void ClientListener::Refuse(uint64_t pending_id, const Status& why) {
  Answer(pending_.at(pending_id), why);
  Drop(pending_id);
}

void ClientListener::NoLongerSilent(uint64_t pending_id, const Pending& pending) {
  const auto user = silent_.find(pending.silent_user);
  if (user == silent_.end()) return;
  user->second.erase(pending_id);
  if (user->second.empty()) silent_.erase(user);
}

void ClientListener::Drop(uint64_t pending_id) {
  const auto found = pending_.find(pending_id);
  if (found == pending_.end()) return;
  loop_.Unwatch(found->second.socket.get());
  NoLongerSilent(pending_id, found->second);
  pending_.erase(found);
}

}  // namespace tally::server
