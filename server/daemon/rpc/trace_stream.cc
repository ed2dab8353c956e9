#include "server/daemon/rpc/trace_stream.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "base/printable.h"
#include "server/daemon/rpc/session_message.h"
#include "server/daemon/trace_file.h"

namespace tally::server {
namespace {

namespace v1 = control::v1;

constexpr std::chrono::nanoseconds kShortest = std::chrono::milliseconds(1);
// A message of gRPC holds 4 MiB; names are at most 255 bytes.
constexpr int kEventsPerChunk = 4096;

void Fill(const control::TraceEvent& event, const ExecutorTrace& executor, const std::vector<std::string>& names,
          v1::TraceEvent* message) {
  // The numbers are the same (control.proto, trace_abi.h).
  message->set_kind(static_cast<v1::TraceEvent::Kind>(event.kind));
  message->set_executor_pid(executor.executor_pid);
  message->set_session_id(event.session_id);
  message->set_device(event.device);
  message->set_queue(event.queue);
  message->set_name(Printable(names[event.name]));
  message->set_operations(event.num_launches);
  message->set_begin_ns(event.begin_ns);
  message->set_end_ns(event.end_ns);
  message->set_asked_ns(event.asked_ns);
  message->set_issued_ns(event.issued_ns);
  message->set_reason(v1::TraceEvent::Reason_IsValid(event.reason) ? static_cast<v1::TraceEvent::Reason>(event.reason)
                                                                   : v1::TraceEvent::REASON_UNSPECIFIED);
}

// Sessions that may be told of, with their executors.
class Visible {
 public:
  explicit Visible(std::optional<uid_t> viewer) : viewer_(viewer) {}

  void Add(const Overview& overview) {
    for (const SessionRow& row : overview.sessions) {
      if (viewer_ && !MaySee(*viewer_, row)) {
        others_.insert(row.record.identity.session_id);
        continue;
      }
      pids_[row.record.identity.session_id] = row.executor_pid;
      v1::Session& message = messages_[row.record.identity.session_id];
      message.Clear();
      server::Fill(row, overview.gpus, &message);
    }
  }
  bool HasSession(uint64_t session_id) const {
    if (session_id == 0) return false;
    if (!viewer_ || pids_.contains(session_id)) return true;
    // It has come and gone meanwhile: executors recorded only this user's and those of his grants. Of user 0's, some
    // may have been by another grant.
    return *viewer_ != 0 && !others_.contains(session_id);
  }
  bool HasExecutor(pid_t pid, const std::vector<control::TraceEvent>& events) const {
    if (!viewer_) return true;
    return std::ranges::any_of(pids_, [&](const auto& entry) { return entry.second == pid; }) ||
           std::ranges::any_of(events, [&](const auto& event) { return HasSession(event.session_id); });
  }
  const std::map<uint64_t, v1::Session>& messages() const { return messages_; }

 private:
  const std::optional<uid_t> viewer_;
  std::map<uint64_t, pid_t> pids_;  // of the executors, by session
  std::set<uint64_t> others_;
  std::map<uint64_t, v1::Session> messages_;
};

}  // namespace

grpc::Status StreamTrace(ControlDesk& desk, const v1::TraceRequest& request, std::optional<uid_t> viewer,
                         grpc::ServerWriter<v1::TraceChunk>& writer) {
  const std::chrono::nanoseconds duration(request.duration_ns());
  if (request.duration_ns() > control::kLongestTraceNs || duration < kShortest) {
    return grpc::Status(grpc::StatusCode::INVALID_ARGUMENT, "duration_ns must be from 1000000 to 60000000000");
  }
  Visible visible(viewer);
  const auto before = desk.GetOverview();
  if (!before) return ToGrpc(before.error());
  visible.Add(*before);
  const auto recording = desk.Trace(duration, viewer);
  if (!recording) return ToGrpc(recording.error());
  const auto after = desk.GetOverview();
  if (!after) return ToGrpc(after.error());
  visible.Add(*after);

  std::vector<std::pair<const ExecutorTrace*, TraceContents>> contents;
  v1::TraceChunk chunk;
  chunk.set_is_cut_short(recording->is_cut_short);
  for (const ExecutorTrace& trace : recording->executors) {
    auto read = ReadTraceFile(trace.file.get());
    if (!visible.HasExecutor(trace.executor_pid, read ? read->events : std::vector<control::TraceEvent>())) continue;
    v1::TracedExecutor* executor = chunk.add_executors();
    executor->set_pid(trace.executor_pid);
    executor->set_domain(trace.domain.Label());
    for (const std::string& gpu : trace.gpus) executor->add_gpus(gpu);
    if (!read) {
      executor->set_problem(read.error().message());
      continue;
    }
    executor->set_began_ns(read->header.began_ns);
    executor->set_ended_ns(read->header.ended_ns);
    executor->set_dropped(read->header.num_dropped);
    executor->set_clock_error_ns(read->header.clock_error_ns);
    contents.emplace_back(&trace, std::move(*read));
  }
  for (const auto& [id, session] : visible.messages()) *chunk.add_sessions() = session;
  bool is_listening = writer.Write(chunk);
  chunk.Clear();
  for (const auto& [trace, recorded] : contents) {
    for (const control::TraceEvent& event : recorded.events) {
      if (!is_listening) return grpc::Status::CANCELLED;
      if (event.session_id != 0 && !visible.HasSession(event.session_id)) continue;
      Fill(event, *trace, recorded.names, chunk.add_events());
      if (chunk.events_size() < kEventsPerChunk) continue;
      is_listening = writer.Write(chunk);
      chunk.Clear();
    }
  }
  if (chunk.events_size() > 0) writer.Write(chunk);
  return grpc::Status::OK;
}

}  // namespace tally::server
