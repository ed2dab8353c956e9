// How sessions get to their executors: quotas, waiting, handing over, books (executor_pool.h).
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <utility>

#include "base/log.h"
#include "proto/control/tenant_page_name.h"
#include "proto/driver/generated/driver_symbols.h"
#include "scheduler/launch.h"
#include "scheduler/slo_feedback.h"
#include "server/daemon/executor_pool.h"
#include "server/daemon/peer_facts.h"
#include "server/daemon/policy_rules.h"
#include "server/daemon/tenant_files.h"

namespace tally::server {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

// For how long a session waits until an executor may be started, or until one takes it. Clients wait for a minute.
constexpr std::chrono::seconds kPatience{30};
// An executor that has more to read than its socket holds gets the rest as soon as it has read some.
constexpr milliseconds kDeliveryPause{10};
// Pages of tenants whose sessions have ended: when they are removed, and when again if they are still in use.
constexpr milliseconds kPageDelay{10};
constexpr milliseconds kPagePause{2000};

}  // namespace

void ExecutorPool::Open(const Domain& domain, const control::SessionIdentity& identity, UniqueFd socket, Done done) {
  Executor::Waiting waiting{identity, std::move(socket), std::move(done)};
  const bool is_best_effort = identity.priority_class == static_cast<uint32_t>(shm::PriorityClass::kBestEffort);
  if (domain.are_classes_mixed && is_best_effort) waiting.program = ProgramOf(identity);
  const auto what = waiting.program ? LongBlocks(config_.cache_directory).Find(*waiting.program) : std::nullopt;
  if (!what) return Place(domain, std::move(waiting));
  LOG_INFO("session {}: its program gets a context of its own: when it shared one, {}", identity.session_id, *what);
  const Domain own = domain.Apart(waiting.program->DomainName());
  Place(own, std::move(waiting));
}

void ExecutorPool::Place(const Domain& domain, Executor::Waiting waiting) {
  if (is_shutting_down_) return waiting.done(Status(StatusCode::kUnavailable, "tallyd is ending"));
  if (const Status quotas = CheckQuotas(waiting.identity); !quotas.ok()) return waiting.done(quotas);
  ExecutorPtr executor = MayStillBeAdopted() ? nullptr : FindForNewSession(domain);
  if (executor == nullptr) {
    const Status may_start = CheckMayStart(domain);
    if (!may_start.ok() && (MayStillBeAdopted() || !domain.shares_otherwise)) {
      if (steady_clock::now() - waiting.since >= kPatience) return waiting.done(may_start);
      if (!std::exchange(waiting.was_held, true)) {
        LOG_INFO("session {} waits: {}", waiting.identity.session_id, may_start.message());
        loop_.PostDelayed(kPatience, [this] { RetryHeld(); });
      }
      held_.push_back({domain, std::move(waiting)});
      return;
    }
    auto started = may_start.ok() ? Start(domain) : std::unexpected(may_start);
    if (!started && domain.shares_otherwise) {
      LOG_INFO("session {} shares a context all the same: {}", waiting.identity.session_id, started.error().message());
      return Place(domain.Mixed(), std::move(waiting));
    }
    if (!started) return waiting.done(started.error());
    executor = *started;
  }
  executor->waiting.push_back(std::move(waiting));
  if (executor->state == ExecutorState::kServing) DeliverWaiting(executor);
}

Status ExecutorPool::CheckQuotas(const control::SessionIdentity& identity) const {
  if (NumSessions() >= config_.max_sessions) {
    return Status(StatusCode::kResourceExhausted,
                  fmt::format("all {} sessions are in use (max_sessions)", config_.max_sessions));
  }
  if (NumSessionsLike(identity) >= config_.max_sessions_per_user) {
    return Status(StatusCode::kResourceExhausted,
                  fmt::format("{} has all {} sessions a user or tenant may have (max_sessions_per_user)",
                              identity.grant_id != 0 ? fmt::format("tenant '{}'", identity.tenant_name)
                                                     : fmt::format("user {}", identity.uid),
                              config_.max_sessions_per_user));
  }
  return OkStatus();
}

Status ExecutorPool::CheckMayStart(const Domain& domain) const {
  if (MayStillBeAdopted()) return Status(StatusCode::kUnavailable, "executors of an earlier tallyd are to come back");
  const std::string owner = domain.OwnerLabel();
  // What comes next may be unable to do without one.
  if (domain.shares_otherwise && NumDomainsOf(owner) + 1 >= config_.max_domains_per_user) {
    return Status(StatusCode::kResourceExhausted,
                  fmt::format("domain {}: there are {} domains already, and the last one is left to others "
                              "(max_domains_per_user)",
                              domain.Label(), NumDomainsOf(owner)));
  }
  if (const auto pause = fault_back_off_.PauseOf(owner, SteadyClock().Now()); pause.count() > 0) {
    return Status(StatusCode::kUnavailable,
                  fmt::format("{}: {} executors in a row have failed: the next starts in {} ms", owner,
                              fault_back_off_.InARow(owner), std::chrono::ceil<milliseconds>(pause).count()));
  }
  const bool does_one_end = std::any_of(executors_.begin(), executors_.end(), [&](const ExecutorPtr& each) {
    const bool is_to_end = each->state == ExecutorState::kRetiring || each->state == ExecutorState::kLeaving;
    return is_to_end && each->domain.OwnerLabel() == owner;
  });
  if (does_one_end && NumDomainsOf(owner) >= config_.max_domains_per_user) {
    return Status(StatusCode::kResourceExhausted,
                  fmt::format("domain {}: all {} domains are there (max_domains_per_user), and one that is to end has "
                              "not yet",
                              domain.Label(), config_.max_domains_per_user));
  }
  return OkStatus();
}

void ExecutorPool::DeliverWaiting(const ExecutorPtr& executor) {
  while (!executor->waiting.empty() && executor->state == ExecutorState::kServing) {
    Executor::Waiting waiting = std::move(executor->waiting.front());
    executor->waiting.pop_front();
    const Status sent = Deliver(*executor, waiting);
    if (sent.ok()) continue;
    if (steady_clock::now() - waiting.since >= kPatience) {
      waiting.done(
          Status(StatusCode::kUnavailable, fmt::format("executor {} of domain {} does not take sessions: {}",
                                                       executor->pid, executor->domain.Label(), sent.message())));
      continue;
    }
    executor->waiting.push_front(std::move(waiting));
    if (std::exchange(executor->is_delivery_due, true)) return;
    loop_.PostDelayed(kDeliveryPause, [this, weak = std::weak_ptr(executor)] {
      const ExecutorPtr alive = weak.lock();
      if (alive == nullptr) return;
      alive->is_delivery_due = false;
      DeliverWaiting(alive);
    });
    return;
  }
}

// Not OK: its socket is full, or it is about to be seen to be gone.
Status ExecutorPool::Deliver(Executor& executor, Executor::Waiting& waiting) {
  if (const Status asked = server::CheckHonoured(waiting.identity, executor.policy.policy); !asked.ok()) {
    waiting.done(asked);
    return OkStatus();
  }
  TALLY_RETURN_IF_ERROR(executor.link->SendAddSession(waiting.identity, waiting.socket.get()));
  SessionRecord& session = executor.sessions[waiting.identity.session_id] = {
      waiting.identity, {}, false, false, CgroupOf(waiting.identity.pid), waiting.program};
  if (waiting.identity.slo_latency_ns != 0) {
    session.figures["slo_caution"] = scheduler::SloFeedback::kFirstStep;  // until it reports
  }
  OnTenantsChanged();
  PlanTimeSlices();
  waiting.done(OkStatus());
  return OkStatus();
}

std::optional<shm::PriorityClass> ExecutorPool::ClassOf(const Domain& domain) const {
  const ExecutorPtr executor = FindForNewSession(domain);
  if (executor == nullptr) return std::nullopt;
  return executor->domain.priority_class;
}

ExecutorPool::ExecutorPtr ExecutorPool::FindByPid(pid_t pid) const {
  const auto found = std::find_if(executors_.begin(), executors_.end(), [&](auto& each) { return each->pid == pid; });
  return found == executors_.end() ? nullptr : *found;
}

ExecutorPool::ExecutorPtr ExecutorPool::FindForNewSession(const Domain& domain) const {
  for (const ExecutorPtr& executor : executors_) {
    const bool takes_sessions =
        executor->state == ExecutorState::kStarting || executor->state == ExecutorState::kServing;
    if (takes_sessions && executor->domain.SameAs(domain)) return executor;
  }
  return nullptr;
}

size_t ExecutorPool::NumSessions() const {
  size_t count = held_.size();
  for (const ExecutorPtr& executor : executors_) count += executor->sessions.size() + executor->waiting.size();
  return count;
}

size_t ExecutorPool::NumSessionsLike(const control::SessionIdentity& identity) const {
  const auto is_like = [&](const control::SessionIdentity& other) {
    if (other.grant_id != identity.grant_id) return false;
    return identity.grant_id != 0 || other.uid == identity.uid;
  };
  size_t count = 0;
  for (const Held& held : held_) count += is_like(held.waiting.identity);
  for (const ExecutorPtr& executor : executors_) {
    for (const auto& [id, session] : executor->sessions) count += is_like(session.identity);
    for (const auto& waiting : executor->waiting) count += is_like(waiting.identity);
  }
  return count;
}

template <typename Predicate>
void ExecutorPool::EndSessionsIf(Executor& executor, const std::string& reason, const Predicate& is_to_end) {
  bool is_any = false;
  for (const auto& [id, session] : executor.sessions) {
    if (!is_to_end(session.identity)) continue;
    is_any = true;
    LOG_INFO("session {} of tenant '{}' ends: {}", id, session.identity.tenant_name, reason);
    // Without a link: when it has connected again (OnListed).
    if (executor.link != nullptr) (void)executor.link->SendEndSession(id, reason);
  }
  // Nobody else is there; and a later grant of the same name is to find nothing of this one.
  if (is_any && executor.domain.IsOneTenants()) End(executor);
}

void ExecutorPool::OnListed(Executor& executor) {
  // What it does not mention has ended while it was disconnected: its last figures are those that are known.
  std::erase_if(executor.sessions, [&](const auto& each) {
    if (each.second.is_in_doubt) ledger_.AddEnded(each.second.identity, each.second.figures);
    return each.second.is_in_doubt;
  });
  KeepLedger();
  EndSessionsIf(executor, "its grant was revoked", [this](const control::SessionIdentity& identity) {
    return identity.grant_id != 0 && !is_grant_there_(identity.grant_id);
  });
  StopAwaiting(executor.pid);
}

void ExecutorPool::EndGrant(uint64_t grant_id, const std::string& tenant, const Status& why) {
  const auto is_of_grant = [grant_id](const control::SessionIdentity& identity) {
    return identity.grant_id == grant_id;
  };
  std::vector<Executor::Waiting> refused;
  for (auto held = held_.begin(); held != held_.end();) {
    const bool is_one = is_of_grant(held->waiting.identity);
    if (is_one) refused.push_back(std::move(held->waiting));
    held = is_one ? held_.erase(held) : std::next(held);
  }
  for (const ExecutorPtr& executor : std::list(executors_)) {
    std::deque<Executor::Waiting> others;
    for (Executor::Waiting& waiting : executor->waiting) {
      if (is_of_grant(waiting.identity)) {
        refused.push_back(std::move(waiting));
      } else {
        others.push_back(std::move(waiting));
      }
    }
    executor->waiting = std::move(others);
    EndSessionsIf(*executor, why.message(), is_of_grant);
    // Also one that only starts: a later grant of this name may have another limit.
    if (executor->domain.grant_owner == tenant && executor->state != ExecutorState::kRetiring) End(*executor);
  }
  for (Executor::Waiting& waiting : refused) waiting.done(why);
}

void ExecutorPool::EndSessions(Executor& executor) {
  for (const auto& [id, session] : executor.sessions) ledger_.AddEnded(session.identity, session.figures);
  if (!executor.sessions.empty()) KeepLedger();
  const auto ended = std::exchange(executor.sessions, {});
  for (const auto& [id, session] : ended) LeaveTenantPage(session.identity);
}

void ExecutorPool::LeaveTenantPage(const control::SessionIdentity& ended) {
  if (ended.device_memory_bytes == 0 && ended.share_permille >= scheduler::kWholeShare) return;
  left_pages_.insert(control::TenantPageName(ended.grant_id, ended.uid, ended.tenant_name));
  // Many end at once, and each would look at all sessions.
  if (std::exchange(is_removal_due_, true)) return;
  loop_.PostDelayed(kPageDelay, [this] {
    is_removal_due_ = false;
    RemoveTenantPages();
  });
}

void ExecutorPool::RemoveTenantPages() {
  const std::set<std::string> needed = NeededTenantPages();
  std::erase_if(left_pages_, [&](const std::string& page) {
    if (needed.contains(page)) return true;  // its last session comes back here
    return RemoveTenantPage(runtime_dir_.PathOf(std::string(control::kTenantsDirectory) + "/" + page));
  });
  if (left_pages_.empty() || std::exchange(is_removal_due_, true)) return;
  loop_.PostDelayed(kPagePause, [this] {
    is_removal_due_ = false;
    RemoveTenantPages();
  });
}

void ExecutorPool::FindTenantPages() {
  std::error_code none;
  for (const auto& entry : std::filesystem::directory_iterator(runtime_dir_.PathOf(control::kTenantsDirectory), none)) {
    left_pages_.insert(entry.path().filename());
  }
  RemoveTenantPages();
}

std::set<std::string> ExecutorPool::NeededTenantPages() const {
  std::set<std::string> needed;
  const auto add = [&](const control::SessionIdentity& identity) {
    needed.insert(control::TenantPageName(identity.grant_id, identity.uid, identity.tenant_name));
  };
  for (const ExecutorPtr& executor : executors_) {
    for (const Executor::Waiting& waiting : executor->waiting) add(waiting.identity);
    for (const auto& [id, session] : executor->sessions) add(session.identity);
  }
  for (const Held& held : held_) add(held.waiting.identity);
  return needed;
}

std::map<std::string, uint64_t> ExecutorPool::RefusedFunctions() const {
  std::map<std::string, uint64_t> result;
  const auto add = [&](const std::map<uint32_t, uint64_t>& functions) {
    for (const auto& [symbol, count] : functions) result[kDriverSymbols[symbol].name] += count;
  };
  add(ended_refused_functions_);
  for (const ExecutorPtr& executor : executors_) add(executor->refused_functions);
  return result;
}

void ExecutorPool::RefuseWaiting(Executor& executor, const Status& why) {
  auto waiting = std::exchange(executor.waiting, {});
  for (auto& session : waiting) session.done(why);
}

void ExecutorPool::PlaceWaitingAnew(Executor& executor) {
  auto waiting = std::exchange(executor.waiting, {});
  for (auto& session : waiting) Place(executor.domain, std::move(session));
}

}  // namespace tally::server
