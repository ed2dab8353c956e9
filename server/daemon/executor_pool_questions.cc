// What executors are asked, and what they are told for one session (executor_pool.h).
#include <fmt/format.h>

#include <utility>

#include "base/mapped_region.h"
#include "proto/control/trace_abi.h"
#include "server/daemon/executor_pool.h"
#include "server/daemon/graph_picture_file.h"
#include "server/daemon/policy_rules.h"

namespace tally::server {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kPriorityReplyLimit{2000};
// After a recording: for what is on the GPU, and to write it.
constexpr milliseconds kTraceAnswerLimit{3000};

}  // namespace

void ExecutorPool::Query(milliseconds limit, std::function<void()> done) {
  for (const ExecutorPtr& executor : executors_) {
    for (auto& [session_id, session] : executor->sessions) session.is_stale = true;  // until it answers
  }
  Ask(control::LinkKind::kQuery, limit, [done = std::move(done)](const auto&) { done(); });
}

void ExecutorPool::QueryKernels(milliseconds limit, Answered done) {
  for (const ExecutorPtr& executor : executors_) executor->kernels.clear();
  Ask(control::LinkKind::kQueryKernels, limit, std::move(done));
}

void ExecutorPool::QueryWindowShapes(milliseconds limit, Answered done) {
  for (const ExecutorPtr& executor : executors_) executor->window_shapes.clear();
  Ask(control::LinkKind::kQueryWindowShapes, limit, std::move(done));
}

void ExecutorPool::QueryGraphs(milliseconds limit, Answered done) {
  for (const ExecutorPtr& executor : executors_) executor->graphs.clear();
  Ask(control::LinkKind::kQueryGraphs, limit, std::move(done));
}

void ExecutorPool::DrawGraph(uint64_t session_id, uint32_t number, milliseconds limit,
                             std::function<void(std::string)> done) {
  auto file = CreateSealedMemfd("tally-graph", control::kGraphPictureBytes, 4096);
  if (!file) return done({});
  const auto shared = std::make_shared<UniqueFd>(std::move(*file));
  const auto send = [&](Executor& executor, uint64_t id) {
    return executor.sessions.contains(session_id) &&
           executor.link->SendDrawGraph(id, session_id, number, shared->get()).ok();
  };
  Ask(send, limit, [shared, done = std::move(done)](const auto&) { done(ReadGraphPicture(shared->get())); });
}

void ExecutorPool::Trace(std::chrono::nanoseconds duration, std::optional<uint32_t> uid, std::function<void()> done) {
  const auto send = [&](Executor& executor, uint64_t id) {
    executor.trace_file.Reset();
    // Of a page until something is written: most executors have little to tell.
    auto file = CreateSealedMemfd("tally-trace", control::kTraceFileBytes, 4096);
    if (!file || !executor.link->SendTrace(id, duration, uid, file->get()).ok()) return false;
    executor.trace_file = std::move(*file);
    return true;
  };
  for (const ExecutorPtr& executor : executors_) executor->trace_file.Reset();
  Ask(send, std::chrono::ceil<milliseconds>(duration) + kTraceAnswerLimit,
      [done = std::move(done)](const auto&) { done(); });
}

void ExecutorPool::EndTraces() {
  for (const ExecutorPtr& executor : executors_) {
    if (executor->trace_file.valid() && executor->link != nullptr)
      (void)executor->link->SendSignal(control::LinkKind::kEndTrace, 0);
  }
}

std::vector<int> ExecutorPool::KnownGpus(std::string_view named) const {
  std::vector<control::GpuUuid> uuids(known_gpus_.size());
  for (size_t i = 0; i < uuids.size(); ++i) std::ranges::copy(known_gpus_[i].uuid, uuids[i].begin());
  return control::OrdinalsOf(named, uuids);
}

Status ExecutorPool::CheckGpus(const GrantSpec& grant) const {
  if (known_gpus_.empty() || !KnownGpus(control::JoinedGpus(grant.gpus)).empty()) return OkStatus();
  return Status(StatusCode::kFailedPrecondition,
                fmt::format("tenant '{}' may use {} only, which this machine does not have: it has {} GPUs",
                            grant.tenant, fmt::join(grant.gpus, ", "), known_gpus_.size()));
}

void ExecutorPool::Ask(control::LinkKind question, milliseconds limit, Answered done) {
  Ask([question](Executor& executor, uint64_t id) { return executor.link->SendSignal(question, id).ok(); }, limit,
      std::move(done));
}

void ExecutorPool::Ask(const std::function<bool(Executor&, uint64_t)>& send, milliseconds limit, Answered done) {
  const uint64_t id = next_request_id_++;
  Inquiry inquiry{{}, std::move(done)};
  for (const ExecutorPtr& executor : executors_) {
    if (executor->link != nullptr && send(*executor, id)) inquiry.awaited.insert(executor->pid);
  }
  if (inquiry.awaited.empty()) return inquiry.done({});
  inquiries_.emplace(id, std::move(inquiry));
  loop_.PostDelayed(limit, [this, id] {
    const auto late = inquiries_.extract(id);
    if (!late.empty()) late.mapped().done(late.mapped().awaited);
  });
}

void ExecutorPool::AnswerArrived(uint64_t inquiry_id, pid_t pid) {
  const auto found = inquiries_.find(inquiry_id);
  if (found == inquiries_.end()) return;
  found->second.awaited.erase(pid);
  if (found->second.awaited.empty()) inquiries_.extract(found).mapped().done({});
}

void ExecutorPool::AnswersFailed(pid_t pid) {
  std::vector<uint64_t> ids;
  for (const auto& [id, inquiry] : inquiries_) ids.push_back(id);
  for (const uint64_t id : ids) AnswerArrived(id, pid);
}

void ExecutorPool::SetPriority(uint64_t session_id, const control::ShareChange& change, Done done) {
  for (const ExecutorPtr& executor : executors_) {
    if (!executor->sessions.contains(session_id)) continue;
    if (executor->link == nullptr) return done(Status(StatusCode::kUnavailable, "its executor does not answer"));
    if (const Status asked = server::CheckHonoured(change, executor->policy.policy); !asked.ok()) return done(asked);
    const uint64_t id = next_request_id_++;
    const Status sent = executor->link->SendSetPriority(id, session_id, change);
    if (!sent.ok()) return done(Status(StatusCode::kUnavailable, "its executor does not answer"));
    priority_changes_.emplace(id, [this, executor, session_id, change, done = std::move(done)](Status status) {
      const auto session = executor->sessions.find(session_id);
      if (status.ok() && session != executor->sessions.end() && change.priority_class != shm::PriorityClass::kDefault) {
        session->second.identity.priority_class = static_cast<uint32_t>(change.priority_class);
        PlanTimeSlices();
      }
      if (status.ok()) OnTenantsChanged();
      done(std::move(status));
    });
    loop_.PostDelayed(kPriorityReplyLimit, [this, id] {
      const auto late = priority_changes_.extract(id);
      if (!late.empty()) {
        late.mapped()(Status(StatusCode::kDeadlineExceeded, "its executor did not answer in 2 s"));
      }
    });
    return;
  }
  done(Status(StatusCode::kNotFound, fmt::format("there is no session {}: 'tallyctl ps' lists them", session_id)));
}

}  // namespace tally::server
