#include "server/daemon/client_listener.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <ctime>

#include "base/log.h"
#include "proto/control/window_mode.h"
#include "proto/driver/generated/wire_ops.h"
#include "scheduler/launch.h"
#include "scheduler/slo.h"
#include "scheduler/tuning.h"

namespace tally::server {
namespace {

using std::chrono::steady_clock;

uint64_t MonotonicNs() {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(now.tv_nsec);
}

// Text of a client for logs, labels and terminals: printable ASCII, always terminated.
template <size_t size>
std::string PrintableName(const char (&text)[size]) {
  std::string name(text, ::strnlen(text, size - 1));
  for (char& letter : name) {
    if (letter < ' ' || letter > '~') letter = '?';
  }
  return name;
}

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

bool IsDomainName(const std::string& name) {
  return std::all_of(name.begin(), name.end(), [](char letter) {
    return (letter >= 'a' && letter <= 'z') || (letter >= 'A' && letter <= 'Z') || (letter >= '0' && letter <= '9') ||
           letter == '-' || letter == '_' || letter == '.';
  });
}

}  // namespace

ClientListener::ClientListener(EventLoop& loop, const DaemonConfig& config, ExecutorPool& pool, RuntimeDir& runtime_dir)
    : loop_(loop), config_(config), pool_(pool), runtime_dir_(runtime_dir) {}

Status ClientListener::Listen(const std::string& socket_path, std::optional<UniqueFd> activated) {
  if (activated) {
    listening_ = std::move(*activated);
  } else {
    auto listening = ListenUnix(socket_path, SocketMode(config_));
    if (!listening) return listening.error();
    listening_ = std::move(*listening);
    own_socket_path_ = socket_path;
  }
  return loop_.Watch(listening_.get(), [this] { OnConnection(); });
}

void ClientListener::Reconfigure(const DaemonConfig& config) {
  config_ = config;
  if (OthersMayConnect(config)) runtime_dir_.LetOthersConnect();
  if (!own_socket_path_.empty() && ::chmod(own_socket_path_.c_str(), SocketMode(config)) != 0) {
    LOG_WARNING("cannot change the mode of '{}': {}", own_socket_path_, std::strerror(errno));
  }
}

void ClientListener::StopListening() {
  if (!listening_.valid()) return;
  loop_.Unwatch(listening_.get());
  listening_.Reset();
  if (!own_socket_path_.empty()) ::unlink(own_socket_path_.c_str());
}

void ClientListener::OnConnection() {
  auto socket = AcceptUnix(listening_.get());
  if (!socket) {
    // Out of descriptors: the connection stays in the queue and the descriptor readable, so look away for a moment.
    LOG_WARNING("cannot accept a client: {}", socket.error().message());
    loop_.Unwatch(listening_.get());
    loop_.PostDelayed(std::chrono::milliseconds(100), [this] {
      if (listening_.valid()) (void)loop_.Watch(listening_.get(), [this] { OnConnection(); });
    });
    return;
  }
  const auto peer = GetPeerCredentials(socket->get());
  if (!peer || ::fcntl(socket->get(), F_SETFL, O_NONBLOCK) != 0) return;
  const bool is_refused = !IsAllowed(peer->uid);
  const SilentUser user = is_refused ? kStrangers : peer->uid;
  MakeRoomFor(user);
  const uint64_t id = next_pending_id_++;
  const int fd = socket->get();
  const auto placed = pending_.emplace(id, Pending{std::move(*socket), *peer, steady_clock::now(), false, is_refused});
  silent_[user].insert(id);
  if (!loop_.Watch(fd, [this, id] { OnReadable(id); }).ok()) return Drop(id);
  if (is_refused) {
    Answer(placed.first->second,
           Status(StatusCode::kPermissionDenied,
                  fmt::format("this tallyd runs for user {} and gives user {} no session: start your own (tallyd), or "
                              "have its owner allow you (--allow-uid {})",
                              ::geteuid(), peer->uid, peer->uid)));
  }
  if (!is_timer_set_) {
    is_timer_set_ = true;
    loop_.PostDelayed(kHelloLimit, [this] { HangUpOnTheSilent(); });
  }
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

bool ClientListener::IsAllowed(uid_t uid) const {
  return uid == 0 || uid == ::geteuid() || config_.allowed_uids->Contains(uid);
}

Result<ClientListener::Placement> ClientListener::Place(const shm::HelloRequest& hello, uid_t uid) const {
  Domain domain;
  domain.owner_uid = config_.share_domains_between_users ? control::kSharedDomain : uid;
  domain.name.assign(hello.domain_name, ::strnlen(hello.domain_name, sizeof(hello.domain_name)));
  if (domain.name.size() == sizeof(hello.domain_name) || !IsDomainName(domain.name)) {
    return Error(StatusCode::kInvalidArgument,
                 fmt::format("a domain's name is made of at most {} letters, digits, '-', '_' and '.'",
                             sizeof(hello.domain_name) - 1));
  }
  if (hello.priority_class > static_cast<uint32_t>(shm::PriorityClass::kBestEffort)) {
    return Error(StatusCode::kInvalidArgument, fmt::format("there is no priority class {}", hello.priority_class));
  }
  // The class: as asked, else the domain's, else the configured one.
  std::optional<shm::PriorityClass> domain_class;
  if (const auto reserved = ParsePriorityClass(domain.name)) domain_class = *reserved;
  if (!domain_class && !domain.name.empty()) domain_class = pool_.ClassOf(domain);
  const auto asked = static_cast<shm::PriorityClass>(hello.priority_class);
  const bool may_be_high = uid == 0 || config_.high_priority_uids->Contains(uid);
  const auto default_class = may_be_high ? config_.default_priority : shm::PriorityClass::kBestEffort;
  domain.priority_class = asked != shm::PriorityClass::kDefault ? asked : domain_class.value_or(default_class);
  if (domain_class && domain.priority_class != *domain_class) {
    return Error(StatusCode::kFailedPrecondition,
                 fmt::format("domain '{}' is {}, so a {} program cannot run in it: leave --domain or --priority away",
                             domain.name, PriorityClassName(*domain_class), PriorityClassName(domain.priority_class)));
  }
  if (domain.priority_class == shm::PriorityClass::kHighPriority && !may_be_high) {
    return Error(StatusCode::kPermissionDenied,
                 fmt::format("user {} may not run high-priority programs here: have whoever runs tallyd add it to "
                             "high_priority_uids, or leave --priority away",
                             uid));
  }
  const shm::PriorityClass session_class = domain.priority_class;
  if (domain.name.empty() && config_.share_contexts) {
    domain.name = kMixedDomain;
    domain.priority_class = shm::PriorityClass::kHighPriority;
    domain.are_classes_mixed = true;
  }
  if (domain.name.empty()) domain.name = PriorityClassName(domain.priority_class);
  return Placement{domain, session_class};
}

void ClientListener::OnHello(uint64_t pending_id, const shm::HelloRequest& hello) {
  const PeerCredentials peer = pending_.at(pending_id).peer;
  if (const Status build = CheckBuild(hello); !build.ok()) return Refuse(pending_id, build);
  const auto placement = Place(hello, peer.uid);
  if (!placement) return Refuse(pending_id, placement.error());
  auto pair = CreateSocketPair();
  if (!pair) return Refuse(pending_id, Status(StatusCode::kResourceExhausted, pair.error().message()));

  control::SessionIdentity identity{};
  identity.session_id = runtime_dir_.TakeSessionId();
  identity.opened_ns = MonotonicNs();
  identity.pid = peer.pid;
  identity.uid = peer.uid;
  identity.gid = peer.gid;
  identity.priority_class = static_cast<uint32_t>(placement->session_class);
  if (hello.weight > scheduler::kMaxWeight || hello.level >= scheduler::kNumLevels) {
    return Refuse(pending_id,
                  Status(StatusCode::kInvalidArgument,
                         fmt::format("weight {}, level {}: a weight is from 1 to {}, a level from 0 to {}",
                                     hello.weight, hello.level, scheduler::kMaxWeight, scheduler::kNumLevels - 1)));
  }
  if (hello.turnaround_ns != 0 && !scheduler::IsTurnaround(std::chrono::nanoseconds(hello.turnaround_ns))) {
    return Refuse(pending_id,
                  Status(StatusCode::kInvalidArgument,
                         fmt::format("a turnaround of {} ns: it is from 1 us to 1 s", hello.turnaround_ns)));
  }
  if (hello.window > static_cast<uint16_t>(control::WindowMode::kOn)) {
    return Refuse(pending_id, Status(StatusCode::kInvalidArgument, fmt::format("there is no window {}", hello.window)));
  }
  identity.window = static_cast<uint8_t>(hello.window);
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
  identity.weight = hello.weight != 0 ? hello.weight : scheduler::kDefaultWeight;
  identity.level = hello.level;
  identity.keeps_kernels = hello.keeps_kernels != 0 ? 1 : 0;
  std::string tenant = PrintableName(hello.tenant_name);
  if (tenant.empty()) tenant = "unnamed";
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
  ++refusals_[std::string(StatusCodeName(why.code()))];
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
  LOG_WARNING("refused a session to process {} of user {}: {}", pending.peer.pid, pending.peer.uid, why.message());
}

void ClientListener::Refuse(uint64_t pending_id, const Status& why) {
  Answer(pending_.at(pending_id), why);
  Drop(pending_id);
}

void ClientListener::NoLongerSilent(uint64_t pending_id, const Pending& pending) {
  const auto user = silent_.find(pending.is_refused ? kStrangers : pending.peer.uid);
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
