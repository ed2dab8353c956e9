// tallyd's end of the socket to one executor (proto/control/executor_link_abi.h).
//
// Lives on the daemon's loop. Never blocks: an executor that does not read is treated as gone.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "base/event_loop.h"
#include "base/status.h"
#include "base/unique_fd.h"
#include "proto/control/executor_choices.h"
#include "proto/control/executor_link_abi.h"
#include "scheduler/tuning.h"

namespace tally::server {

class ExecutorLink : public std::enable_shared_from_this<ExecutorLink> {
 public:
  // What arrives, already checked for size and termination. Called on the loop; may Close the link.
  struct Events {
    std::function<void(const control::LinkHello&)> on_hello;
    std::function<void(const control::LinkSessionReport&)> on_report;
    std::function<void(uint32_t symbol_index, uint64_t num_calls)> on_refused_function;  // a row of the table
    std::function<void(const control::LinkKernelReport&)> on_kernel;
    std::function<void(const control::WindowShapeFigures&)> on_window_shape;
    std::function<void(const control::GraphFigures&)> on_graph;
    std::function<void(const control::LinkTimeSlices&)> on_time_slices;
    std::function<void(const control::LinkGpus&)> on_gpus;
    std::function<void(const control::LinkGpu&)> on_gpu;
    std::function<void(uint64_t request_id)> on_report_end;
    std::function<void(uint64_t request_id, Status)> on_set_priority_reply;
    std::function<void(const control::LinkLongBlocks&)> on_long_blocks;
    std::function<void(const std::string& reason)> on_faulted;
    std::function<void()> on_idle;
    std::function<void()> on_leaving;
    std::function<void()> on_closed;  // the peer is gone or broke the protocol; not called by Close()
  };

  static Result<std::shared_ptr<ExecutorLink>> Create(EventLoop& loop, UniqueFd socket, Events events);
  ~ExecutorLink();

  Status SendAddSession(const control::SessionIdentity& identity, int session_socket);
  Status SendSetPriority(uint64_t request_id, uint64_t session_id, const control::ShareChange& change);
  Status SendSetTuning(const scheduler::Tuning& tuning);
  // By the executor's ordinals.
  Status SendSetTimeSlice(std::span<const std::chrono::microseconds> slices, bool is_left_to_slices);
  Status SendEndSession(uint64_t session_id, const std::string& reason);
  // `file`: of kTraceFileBytes.
  Status SendTrace(uint64_t request_id, std::chrono::nanoseconds duration, std::optional<uint32_t> uid, int file);
  // `file`: of kGraphPictureBytes.
  Status SendDrawGraph(uint64_t request_id, uint64_t session_id, uint32_t number, int file);
  Status SendSignal(control::LinkKind kind, uint64_t request_id);

  // Reads what has arrived, as the loop does.
  void Drain() { OnReadable(); }
  // No event after this. Idempotent.
  void Close();

 private:
  ExecutorLink(EventLoop& loop, UniqueFd socket, Events events)
      : loop_(loop), socket_(std::move(socket)), events_(std::move(events)) {}

  void OnReadable();
  // False if the message breaks the protocol.
  bool Dispatch(std::span<const std::byte> bytes);

  EventLoop& loop_;
  UniqueFd socket_;  // not valid after Close
  Events events_;
};

}  // namespace tally::server
