// A recording as a trace in Chrome's JSON format, which ui.perfetto.dev and chrome://tracing open (docs/trace.md).
//
// A session is a process there; each queue of it has two threads: what its program asked for, and what ran on the GPU,
// with an arrow from one to the other. Requests and, for executors, contexts that were kept off the GPU have threads of
// their own.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <utility>

#include "proto/control/control.pb.h"

namespace tally::cli {

class TraceEvents {
 public:
  // Where the text goes, in order. It is JSON once Finish was called.
  using Write = std::function<void(std::string_view)>;
  explicit TraceEvents(Write write);

  // The first chunk has the executors and sessions.
  void Add(const control::v1::TraceChunk& chunk);
  // With what is said about the recording itself.
  void Finish();

  uint64_t num_events() const { return num_events_; }
  uint64_t num_dropped() const { return num_dropped_; }

 private:
  struct Queue {
    uint64_t host_thread = 0;
    uint64_t gpu_thread = 0;
    uint64_t busy_until_ns = 0;
  };
  // In the order of the session's threads.
  using QueueKey = std::pair<uint32_t, uint32_t>;  // device, queue
  struct Session {
    uint64_t process = 0;
    uint64_t num_threads = 0;
    std::map<QueueKey, Queue> queues;
  };

  // One of the format's objects, with its members as JSON.
  void Put(std::string_view members);
  void PutSlice(uint64_t process, uint64_t thread, const std::string& name, uint64_t begin_ns, uint64_t end_ns,
                const std::string& arguments);
  void PutName(const char* what, uint64_t process, uint64_t thread, const std::string& name);
  void PutRun(const control::v1::TraceEvent& event, Session& session);
  Session& SessionOf(uint64_t id, const control::v1::Session* known);
  Queue& QueueOf(Session& session, const control::v1::TraceEvent& event);
  // Microseconds since the beginning.
  std::string Time(uint64_t ns) const;

  const Write write_;
  bool is_first_ = true;
  uint64_t began_ns_ = 0;
  uint64_t ended_ns_ = 0;
  uint64_t num_events_ = 0;
  uint64_t num_dropped_ = 0;
  uint64_t clock_error_ns_ = 0;
  uint64_t num_flows_ = 0;
  std::string problems_;
  std::map<uint64_t, Session> sessions_;
};

}  // namespace tally::cli
