#include "server/ctl/trace_events.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "proto/control/version.h"
#include "server/ctl/control_call.h"

namespace tally::cli {
namespace {

namespace v1 = control::v1;
using Json = nlohmann::json;

// Executors come behind all sessions; the format wants 32 bits.
constexpr uint64_t kExecutorProcesses = 1'000'000'000;
// Of a session: its requests. Queues follow.
constexpr uint64_t kRequests = 1;

// Whatever bytes a program calls its kernels by: a JSON string in ASCII.
std::string Quoted(const std::string& text) {
  return Json(text).dump(-1, ' ', /*ensure_ascii=*/true, Json::error_handler_t::replace);
}

const char* NameOf(v1::TraceEvent::Reason reason) {
  switch (reason) {
    case v1::TraceEvent::REASON_HIGH_PRIORITY:
      return "held: high-priority work";
    case v1::TraceEvent::REASON_POLICY:
      return "held: others' turn";
    default:
      return "held";
  }
}

}  // namespace

TraceEvents::TraceEvents(Write write) : write_(std::move(write)) { write_("{\"traceEvents\":[\n"); }

std::string TraceEvents::Time(uint64_t ns) const {
  const auto since = static_cast<int64_t>(ns - began_ns_);
  return fmt::format("{}{}.{:03}", since < 0 ? "-" : "", std::abs(since) / 1000, std::abs(since) % 1000);
}

void TraceEvents::Put(std::string_view members) {
  write_(is_first_ ? "{" : ",\n{");
  is_first_ = false;
  write_(members);
  write_("}");
}

void TraceEvents::PutName(const char* what, uint64_t process, uint64_t thread, const std::string& name) {
  Put(fmt::format(R"("ph":"M","name":"{}","pid":{},"tid":{},"args":{{"name":{}}})", what, process, thread,
                  Quoted(name)));
}

void TraceEvents::PutSlice(uint64_t process, uint64_t thread, const std::string& name, uint64_t begin_ns,
                           uint64_t end_ns, const std::string& arguments) {
  const uint64_t took_ns = end_ns > begin_ns ? end_ns - begin_ns : 0;
  Put(fmt::format(R"("ph":"X","pid":{},"tid":{},"ts":{},"dur":{}.{:03},"name":{},"args":{{{}}})", process, thread,
                  Time(begin_ns), took_ns / 1000, took_ns % 1000, Quoted(name), arguments));
  ++num_events_;
}

TraceEvents::Session& TraceEvents::SessionOf(uint64_t id, const v1::Session* known) {
  const auto [place, is_new] = sessions_.try_emplace(id);
  Session& session = place->second;
  if (!is_new) return session;
  session.process = id % kExecutorProcesses;
  session.num_threads = kRequests;
  std::string name = fmt::format("session {}", id);
  if (known != nullptr) {
    name =
        fmt::format("{} ({}, session {}, pid {})", known->tenant(), NameOf(known->priority_class()), id, known->pid());
    const int rank = known->priority_class() == v1::PRIORITY_CLASS_HIGH ? 0 : 1;
    Put(fmt::format(R"("ph":"M","name":"process_sort_index","pid":{},"args":{{"sort_index":{}}})", session.process,
                    rank));
    if (!known->slo().empty()) {
      PutName("thread_name", session.process, kRequests, "requests, " + known->slo());
    }
  }
  PutName("process_name", session.process, 0, name);
  return session;
}

TraceEvents::Queue& TraceEvents::QueueOf(Session& session, const v1::TraceEvent& event) {
  const auto [place, is_new] = session.queues.try_emplace({event.device(), event.queue()});
  Queue& queue = place->second;
  if (!is_new) return queue;
  queue.host_thread = ++session.num_threads;
  queue.gpu_thread = ++session.num_threads;
  const std::string where = fmt::format("GPU {}, queue {}", event.device(), event.queue());
  PutName("thread_name", session.process, queue.host_thread, where + ": launches");
  PutName("thread_name", session.process, queue.gpu_thread, where + ": on the GPU");
  return queue;
}

void TraceEvents::PutRun(const v1::TraceEvent& event, Session& session) {
  Queue& queue = QueueOf(session, event);
  const std::string name =
      event.operations() > 1 ? fmt::format("{} and {} more", event.name(), event.operations() - 1) : event.name();
  const std::string arguments = fmt::format(R"("operations":{})", event.operations());
  PutSlice(session.process, queue.host_thread, name, event.asked_ns(), event.issued_ns(), arguments);
  if (event.begin_ns() == 0) return;
  const bool has_ended = event.end_ns() != 0;
  const uint64_t end_ns = has_ended ? event.end_ns() : std::max(ended_ns_, event.begin_ns());
  // Work of a stream does not overlap; two readings of its clock may, by a little.
  const uint64_t begin_ns = std::min(std::max(event.begin_ns(), queue.busy_until_ns), end_ns);
  queue.busy_until_ns = end_ns;
  PutSlice(session.process, queue.gpu_thread, has_ended ? name : name + " (goes on)", begin_ns, end_ns, arguments);
  ++num_flows_;
  Put(fmt::format(R"("ph":"s","cat":"launch","name":"launch","id":{},"pid":{},"tid":{},"ts":{})", num_flows_,
                  session.process, queue.host_thread, Time(event.asked_ns())));
  Put(fmt::format(R"("ph":"f","bp":"e","cat":"launch","name":"launch","id":{},"pid":{},"tid":{},"ts":{})", num_flows_,
                  session.process, queue.gpu_thread, Time(begin_ns)));
}

void TraceEvents::Add(const v1::TraceChunk& chunk) {
  for (const v1::TracedExecutor& executor : chunk.executors()) {
    if (!executor.problem().empty()) {
      problems_ += fmt::format("{}executor {} ({}): {}", problems_.empty() ? "" : "; ", executor.pid(),
                               executor.domain(), executor.problem());
      continue;
    }
    began_ns_ = began_ns_ == 0 ? executor.began_ns() : std::min(began_ns_, executor.began_ns());
    ended_ns_ = std::max(ended_ns_, executor.ended_ns());
    num_dropped_ += executor.dropped();
    clock_error_ns_ = std::max(clock_error_ns_, executor.clock_error_ns());
  }
  for (const v1::TracedExecutor& executor : chunk.executors()) {
    const uint64_t process = kExecutorProcesses + static_cast<uint32_t>(executor.pid());
    PutName("process_name", process, 0, fmt::format("executor {} (pid {})", executor.domain(), executor.pid()));
    if (executor.dropped() == 0) continue;
    Put(fmt::format(R"("ph":"i","s":"p","pid":{},"tid":0,"ts":{},"name":"{} operations were not recorded")", process,
                    Time(executor.began_ns()), executor.dropped()));
  }
  for (const v1::Session& session : chunk.sessions()) SessionOf(session.id(), &session);
  for (const v1::TraceEvent& event : chunk.events()) {
    if (event.session_id() == 0) {
      const bool is_off = event.kind() == v1::TraceEvent::KIND_DESCHEDULED;
      PutSlice(kExecutorProcesses + static_cast<uint32_t>(event.executor_pid()), event.device() + 1,
               is_off ? "descheduled" : "refreshed", event.begin_ns(), event.end_ns(),
               fmt::format(R"("gpu":{})", event.device()));
      continue;
    }
    Session& session = SessionOf(event.session_id(), nullptr);
    switch (event.kind()) {
      case v1::TraceEvent::KIND_RUN:
        PutRun(event, session);
        break;
      case v1::TraceEvent::KIND_WAIT:
        PutSlice(session.process, QueueOf(session, event).host_thread, NameOf(event.reason()), event.begin_ns(),
                 event.end_ns(), "");
        break;
      case v1::TraceEvent::KIND_REQUEST:
        PutSlice(session.process, kRequests, "request", event.begin_ns(), event.end_ns(), "");
        break;
      default:  // a later tallyd's
        break;
    }
  }
}

void TraceEvents::Finish() {
  write_("\n],\n\"displayTimeUnit\":\"ns\",\n\"otherData\":{");
  write_(
      fmt::format(R"("recorded by":{},"operations not recorded":"{}","GPU times may be off by":"{} us","seconds":"{}")",
                  Quoted(std::string(control::VersionLine("tallyctl"))), num_dropped_, (clock_error_ns_ + 999) / 1000,
                  static_cast<double>(ended_ns_ - began_ns_) / 1e9));
  if (!problems_.empty()) write_(fmt::format(R"(,"not recorded":{})", Quoted(problems_)));
  write_("}}\n");
}

}  // namespace tally::cli
