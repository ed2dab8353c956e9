// The executor's end of its socket to tallyd (proto/control/executor_link_abi.h). Connects, and connects again every
// kReconnectMs when tallyd is gone: an executor never ends because tallyd did.
//
// Lives on one event loop.
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/event_loop.h"
#include "base/status.h"
#include "base/unique_fd.h"
#include "proto/control/executor_link_abi.h"
#include "server/executor/executor.h"
#include "server/executor/issue/kernel_report.h"
#include "server/executor/process/gpu_channel_groups.h"

namespace tally::server {

class DaemonLink {
 public:
  struct Events {
    std::function<void()> on_connected;  // send a hello and the reports
    std::function<void(const control::SessionIdentity&, UniqueFd)> on_add_session;
    std::function<void(uint64_t request_id)> on_query;
    std::function<void(uint64_t request_id, uint64_t session_id, const control::ShareChange&)> on_set_priority;
    std::function<void(uint64_t request_id)> on_query_kernels;
    std::function<void(uint64_t request_id)> on_query_window_shapes;
    std::function<void(uint64_t request_id)> on_query_graphs;
    std::function<void(uint64_t request_id, uint64_t session_id, uint32_t number, UniqueFd)> on_draw_graph;
    std::function<void(const scheduler::Tuning&)> on_set_tuning;
    // By device.
    std::function<void(const std::vector<std::chrono::microseconds>&, bool is_left_to_slices)> on_set_time_slice;
    std::function<void(uint64_t session_id, const std::string& reason)> on_end_session;
    std::function<void(uint64_t request_id, std::chrono::nanoseconds, std::optional<uint32_t> uid, UniqueFd)> on_trace;
    std::function<void()> on_end_trace;
    std::function<void()> on_shutdown;
  };

  // `loop` must outlive the link.
  DaemonLink(EventLoop& loop, std::string socket_path, Events events);
  ~DaemonLink();

  // Tries now, and again later if nobody is there.
  void Connect();
  bool is_connected() const { return socket_.valid(); }

  // Nothing without a connection: tallyd gets all of it again after the next one.
  void SendHello(control::LinkHello hello);
  void SendGpus(uint32_t driver_version, const std::vector<control::LinkGpu>& gpus);
  void SendReport(uint64_t request_id, const SessionSnapshot& snapshot, bool has_ended);
  void SendRefusedFunctions(const std::vector<RefusedFunction>& functions);
  void SendKernels(uint64_t request_id, const std::vector<KernelReport>& kernels);
  void SendWindowShapes(uint64_t request_id, std::span<const control::WindowShapeFigures> shapes);
  void SendGraphs(uint64_t request_id, std::span<const control::GraphFigures> graphs);
  void SendReportEnd(uint64_t request_id, size_t num_sessions);
  void SendPriorityReply(uint64_t request_id, const Status& status);
  // What was done with the executor's contexts as a whole.
  struct ContextStates {
    control::LinkDescheduling descheduling{};
    uint64_t num_deschedulings = 0;
    uint64_t num_standstills = 0;
    uint64_t num_refreshes = 0;
    bool has_any = false;
    uint64_t used_devices = 0;  // bit n: ordinal n
    bool operator==(const ContextStates&) const = default;
  };
  void SendTimeSlices(const GpuChannelGroups::TimeSlices& slices, const ContextStates& contexts);
  void SendLongBlocks(uint64_t session_id, const std::string& kernel, std::chrono::nanoseconds left);
  void SendFaulted(const std::string& reason);
  void SendIdle();
  void SendLeaving();

 private:
  template <typename Message>
  void Send(control::LinkKind kind, uint64_t request_id, Message message);
  void OnReadable();
  bool Dispatch(std::span<const std::byte> bytes, std::vector<UniqueFd>& fds);
  void TakeWhatIsLeft();
  void Disconnect();

  EventLoop& loop_;
  std::string socket_path_;
  Events events_;
  UniqueFd socket_;
};

// Copies `text` into a field of a message, cut if need be, always terminated.
template <size_t size>
void CopyText(const std::string& text, char (&field)[size]) {
  const size_t length = text.copy(field, size - 1);
  field[length] = '\0';
}

}  // namespace tally::server
