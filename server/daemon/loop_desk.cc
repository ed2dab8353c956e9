#include "server/daemon/loop_desk.h"

#include <algorithm>
#include <future>
#include <memory>
#include <type_traits>
#include <utility>

namespace tally::server {
namespace {

using std::chrono::steady_clock;
constexpr std::chrono::milliseconds kExecutorAnswerLimit{500};
// Longer than anything the loop waits for itself: beyond it, the loop has ended.
constexpr std::chrono::seconds kLoopAnswerLimit{5};

}  // namespace

LoopDesk::LoopDesk(EventLoop& loop, ExecutorPool& pool, const ClientListener& listener, GrantDesk& grants,
                   DaemonFacts facts)
    : loop_(loop),
      pool_(pool),
      listener_(listener),
      grants_(grants),
      facts_(std::move(facts)),
      started_(steady_clock::now()) {}

DaemonFacts LoopDesk::facts() const {
  const std::lock_guard lock(facts_mutex_);
  DaemonFacts facts = facts_;
  facts.uptime = steady_clock::now() - started_;
  return facts;
}

void LoopDesk::SetForcedSwitch(const std::optional<control::SwitchFigures>& figures) {
  const std::lock_guard lock(facts_mutex_);
  facts_.forced_switch = figures;
}

template <typename Answer, typename F>
Answer LoopDesk::Ask(F ask, std::chrono::nanoseconds longer) {
  // Shared with the loop: it may answer after we have stopped waiting.
  const auto promise = std::make_shared<std::promise<Answer>>();
  auto answer = promise->get_future();
  loop_.Post([promise, ask = std::move(ask)] {
    ask([promise](Answer answered) { promise->set_value(std::move(answered)); });
  });
  if (answer.wait_for(kLoopAnswerLimit + longer) == std::future_status::ready) return answer.get();
  Status ended(StatusCode::kUnavailable, "tallyd is ending");
  if constexpr (std::is_same_v<Answer, Status>) {
    return ended;
  } else {
    return std::unexpected(std::move(ended));
  }
}

Result<Overview> LoopDesk::GetOverview() {
  return Ask<Result<Overview>>(
      [this](auto answer) { pool_.Query(kExecutorAnswerLimit, [this, answer] { answer(Collect()); }); });
}

Status LoopDesk::SetPriority(uint64_t session_id, const control::ShareChange& change) {
  return Ask<Status>([this, session_id, change](auto answer) { pool_.SetPriority(session_id, change, answer); });
}

Result<Listed<KernelRow>> LoopDesk::GetKernels() {
  using Answer = Listed<KernelRow>;
  return Ask<Result<Answer>>([this](auto answer) {
    pool_.QueryKernels(kExecutorAnswerLimit, [this, answer](auto& late) { answer(Answer{CollectKernels(), late}); });
  });
}

Result<Listed<control::WindowShapeFigures>> LoopDesk::GetWindowShapes() {
  using Answer = Listed<control::WindowShapeFigures>;
  return Ask<Result<Answer>>([this](auto answer) {
    pool_.QueryWindowShapes(kExecutorAnswerLimit, [this, answer](auto& late) {
      answer(Answer{CollectWindowShapes(), late});
    });
  });
}

Result<Listed<control::GraphFigures>> LoopDesk::GetGraphs() {
  using Answer = Listed<control::GraphFigures>;
  return Ask<Result<Answer>>([this](auto answer) {
    pool_.QueryGraphs(kExecutorAnswerLimit, [this, answer](auto& late) { answer(Answer{CollectGraphs(), late}); });
  });
}

Result<std::string> LoopDesk::DrawGraph(uint64_t session_id, uint32_t number) {
  return Ask<Result<std::string>>(
      [this, session_id, number](auto answer) { pool_.DrawGraph(session_id, number, kExecutorAnswerLimit, answer); });
}

Result<Recording> LoopDesk::Trace(std::chrono::nanoseconds duration, std::optional<uint32_t> uid) {
  const Status turn =
      trace_turns_.Enter(!uid.has_value(), kLoopAnswerLimit, [this] { loop_.Post([this] { pool_.EndTraces(); }); });
  if (!turn.ok()) return std::unexpected(turn);
  auto traces = Ask<Result<Recording>>(
      [this, duration, uid](auto answer) { pool_.Trace(duration, uid, [this, answer] { answer(CollectTraces()); }); },
      duration);
  const bool is_cut_short = trace_turns_.Leave();
  if (traces) traces->is_cut_short = is_cut_short;
  return traces;
}

Status LoopDesk::SetTurnaroundThreshold(std::chrono::nanoseconds threshold) {
  return Ask<Status>([this, threshold](auto answer) {
    const Status honoured = pool_.CheckHonoured(scheduler::Setting::kTurnaround);
    if (honoured.ok()) pool_.SetTurnaroundThreshold(threshold);
    answer(honoured);
  });
}

Result<GrantRow> LoopDesk::CreateGrant(const GrantSpec& spec) {
  return Ask<Result<GrantRow>>([this, spec](auto answer) { answer(grants_.Create(spec)); });
}

Status LoopDesk::LabelGrant(const std::string& tenant, const GrantLabels& labels) {
  return Ask<Status>([this, tenant, labels](auto answer) { answer(grants_.Label(tenant, labels)); });
}

Status LoopDesk::RevokeGrant(const std::string& tenant) {
  return Ask<Status>([this, tenant](auto answer) { answer(grants_.Revoke(tenant)); });
}

Result<std::vector<GrantRow>> LoopDesk::GetGrants() {
  return Ask<Result<std::vector<GrantRow>>>([this](auto answer) { answer(grants_.Rows()); });
}

std::vector<KernelRow> LoopDesk::CollectKernels() const {
  std::vector<KernelRow> rows;
  for (const auto& executor : pool_.executors()) {
    for (const control::LinkKernelReport& report : executor->kernels) {
      rows.push_back({report, executor->domain, executor->pid});
    }
  }
  std::stable_sort(rows.begin(), rows.end(), [](const KernelRow& left, const KernelRow& right) {
    return left.report.gpu_time_ns > right.report.gpu_time_ns;
  });
  return rows;
}

std::vector<control::WindowShapeFigures> LoopDesk::CollectWindowShapes() const {
  std::vector<control::WindowShapeFigures> shapes;
  for (const auto& executor : pool_.executors()) {
    shapes.insert(shapes.end(), executor->window_shapes.begin(), executor->window_shapes.end());
  }
  std::ranges::stable_sort(shapes, std::greater(), &control::WindowShapeFigures::num_uses);
  return shapes;
}

std::vector<control::GraphFigures> LoopDesk::CollectGraphs() const {
  std::vector<control::GraphFigures> graphs;
  for (const auto& executor : pool_.executors()) {
    graphs.insert(graphs.end(), executor->graphs.begin(), executor->graphs.end());
  }
  std::ranges::stable_sort(graphs, std::greater(), &control::GraphFigures::num_launches);
  return graphs;
}

Recording LoopDesk::CollectTraces() const {
  Recording recording;
  for (const auto& executor : pool_.executors()) {
    if (!executor->trace_file.valid()) continue;
    ExecutorTrace& trace = recording.executors.emplace_back();
    trace.executor_pid = executor->pid;
    trace.domain = executor->domain;
    for (const size_t place : executor->gpu_places) trace.gpus.push_back(pool_.gpus()[place]);
    trace.file = std::move(executor->trace_file);
  }
  return recording;
}

Overview LoopDesk::Collect() const {
  Overview overview;
  const auto now = steady_clock::now();
  const auto now_ns = std::chrono::duration_cast<std::chrono::nanoseconds>(now.time_since_epoch());
  overview.tenants = pool_.ledger().ended();
  overview.refused_functions = pool_.RefusedFunctions();
  overview.domains = pool_.counters();
  overview.tuning = pool_.tuning();
  overview.gpus = pool_.gpus();
  overview.refused_sessions = listener_.refusals();
  overview.refused_by_grants = listener_.refusals_of_grants();
  overview.grants = grants_.Rows();
  std::map<uint64_t, const GrantSpec*> grants;
  for (const GrantRow& row : overview.grants) grants[row.grant.id] = &row.grant.spec;
  for (const auto& executor : pool_.executors()) {
    overview.executors.push_back({executor->pid, executor->domain, executor->state, executor->driver_name,
                                  executor->num_devices, executor->sessions.size(), now - executor->first_seen,
                                  !executor->is_child, std::string(executor->policy.policy),
                                  std::string(executor->policy.reason), executor->time_slices});
    for (const auto& [id, session] : executor->sessions) {
      const auto age = now_ns - std::chrono::nanoseconds(session.identity.opened_ns);
      const auto grant = grants.find(session.identity.grant_id);
      overview.sessions.push_back({session, executor->domain, executor->pid, executor->driver_name, age,
                                   grant == grants.end() ? GrantSpec{} : *grant->second});
      Accumulate(overview.tenants[TenantKeyOf(session.identity)], session.figures);
    }
  }
  std::sort(overview.sessions.begin(), overview.sessions.end(),
            [](auto& left, auto& right) { return left.record.identity.session_id < right.record.identity.session_id; });
  std::sort(overview.executors.begin(), overview.executors.end(),
            [](auto& left, auto& right) { return left.pid < right.pid; });
  return overview;
}

}  // namespace tally::server
