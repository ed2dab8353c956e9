#include "server/executor/process/daemon_link.h"

#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "base/clock.h"
#include "base/log.h"
#include "base/unix_socket.h"
#include "proto/control/trace_abi.h"

namespace tally::server {
namespace {

using control::LinkKind;

// A tallyd that does not read for this long is treated as gone.
constexpr timeval kSendLimit{1, 0};

template <typename Message>
bool Read(std::span<const std::byte> bytes, Message& into) {
  if (bytes.size() != sizeof(Message)) return false;
  std::memcpy(&into, bytes.data(), sizeof(Message));
  return true;
}

}  // namespace

DaemonLink::DaemonLink(EventLoop& loop, std::string socket_path, Events events)
    : loop_(loop), socket_path_(std::move(socket_path)), events_(std::move(events)) {}

DaemonLink::~DaemonLink() {
  if (socket_.valid()) loop_.Unwatch(socket_.get());
}

void DaemonLink::Connect() {
  auto socket = ConnectUnix(socket_path_);
  if (socket) {
    // The directory is only ours to write, but a path is a path: be sure who listens.
    const auto peer = GetPeerCredentials(socket->get());
    if (peer && peer->uid == ::geteuid()) {
      ::setsockopt(socket->get(), SOL_SOCKET, SO_SNDTIMEO, &kSendLimit, sizeof(kSendLimit));
      socket_ = std::move(*socket);
      if (loop_.Watch(socket_.get(), [this] { OnReadable(); }).ok()) {
        events_.on_connected();
        return;
      }
      socket_.Reset();
    }
  }
  loop_.PostDelayed(std::chrono::milliseconds(control::kReconnectMs), [this] { Connect(); });
}

// What tallyd said before it went counts: a session on its way would be lost.
void DaemonLink::TakeWhatIsLeft() {
  while (socket_.valid()) {
    auto message = ReceiveMessage(socket_.get(), std::chrono::milliseconds(0));
    if (!message || !Dispatch(message->bytes, message->fds)) return;
  }
}

void DaemonLink::Disconnect() {
  TakeWhatIsLeft();
  if (!socket_.valid()) return;
  loop_.Unwatch(socket_.get());
  socket_.Reset();
  LOG_INFO("tallyd is gone; going on without");
  loop_.PostDelayed(std::chrono::milliseconds(control::kReconnectMs), [this] { Connect(); });
}

void DaemonLink::OnReadable() {
  auto message = ReceiveMessage(socket_.get(), std::chrono::milliseconds(0));
  if (!message && message.error().code() == StatusCode::kDeadlineExceeded) return;
  if (!message || !Dispatch(message->bytes, message->fds)) Disconnect();
}

bool DaemonLink::Dispatch(std::span<const std::byte> bytes, std::vector<UniqueFd>& fds) {
  control::LinkHeader header{};
  if (bytes.size() < sizeof(header)) return false;
  std::memcpy(&header, bytes.data(), sizeof(header));
  if (header.magic != control::kLinkMagic) return false;
  switch (static_cast<LinkKind>(header.kind)) {
    case LinkKind::kAddSession: {
      control::LinkAddSession add{};
      if (!Read(bytes, add) || fds.size() != 1) return false;
      add.identity.tenant_name[sizeof(add.identity.tenant_name) - 1] = '\0';
      events_.on_add_session(add.identity, std::move(fds[0]));
      return true;
    }
    case LinkKind::kQuery:
      events_.on_query(header.request_id);
      return true;
    case LinkKind::kQueryKernels:
      events_.on_query_kernels(header.request_id);
      return true;
    case LinkKind::kQueryWindowShapes:
      events_.on_query_window_shapes(header.request_id);
      return true;
    case LinkKind::kQueryGraphs:
      events_.on_query_graphs(header.request_id);
      return true;
    case LinkKind::kDrawGraph: {
      control::LinkDrawGraph draw{};
      if (!Read(bytes, draw) || fds.size() != 1) return false;
      events_.on_draw_graph(header.request_id, draw.session_id, draw.number, std::move(fds[0]));
      return true;
    }
    case LinkKind::kTrace: {
      control::LinkTrace trace{};
      if (!Read(bytes, trace) || fds.size() != 1 || trace.duration_ns > control::kLongestTraceNs) return false;
      events_.on_trace(header.request_id, std::chrono::nanoseconds(trace.duration_ns),
                       trace.uid == control::kEverybody ? std::nullopt : std::optional(trace.uid), std::move(fds[0]));
      return true;
    }
    case LinkKind::kEndTrace:
      events_.on_end_trace();
      return true;
    case LinkKind::kSetTuning: {
      control::LinkSetTuning set{};
      if (!Read(bytes, set)) return false;
      events_.on_set_tuning({.turnaround_threshold = std::chrono::nanoseconds(set.turnaround_ns),
                             .min_hold_off = std::chrono::nanoseconds(set.min_hold_off_ns),
                             .max_hold_off = std::chrono::nanoseconds(set.max_hold_off_ns),
                             .target_drain = std::chrono::nanoseconds(set.target_drain_ns)});
      return true;
    }
    case LinkKind::kSetTimeSlice: {
      control::LinkSetTimeSlice set{};
      if (!Read(bytes, set) || set.num_gpus > control::kMostGpus) return false;
      std::vector<std::chrono::microseconds> slices;
      for (const uint64_t slice_us : std::span(set.slice_us).first(set.num_gpus)) slices.emplace_back(slice_us);
      events_.on_set_time_slice(slices, set.is_left_to_slices != 0);
      return true;
    }
    case LinkKind::kSetPriority: {
      control::LinkSetPriority set{};
      if (!Read(bytes, set)) return false;
      control::ShareChange change;
      change.priority_class = static_cast<shm::PriorityClass>(set.priority_class);
      if (set.weight != control::kAsItIs) change.weight = set.weight;
      if (set.level != control::kAsItIs) change.level = set.level;
      if (set.turnaround_ns != control::kTurnaroundAsItIs) {
        change.turnaround = std::chrono::nanoseconds(set.turnaround_ns);
      }
      events_.on_set_priority(header.request_id, set.session_id, change);
      return true;
    }
    case LinkKind::kEndSession: {
      control::LinkEndSession end{};
      if (!Read(bytes, end)) return false;
      end.reason[sizeof(end.reason) - 1] = '\0';
      events_.on_end_session(end.session_id, end.reason);
      return true;
    }
    case LinkKind::kShutdown:
      events_.on_shutdown();
      return true;
    default:
      return false;
  }
}

template <typename Message>
void DaemonLink::Send(LinkKind kind, uint64_t request_id, Message message) {
  if (!socket_.valid()) return;
  message.header = {control::kLinkMagic, static_cast<uint32_t>(kind), request_id};
  const Status sent = SendMessage(socket_.get(), std::as_bytes(std::span(&message, 1)));
  // The loop sees the end of the connection too; here nothing else can be done.
  if (!sent.ok()) loop_.Post([this] { Disconnect(); });
}

void DaemonLink::SendHello(control::LinkHello hello) { Send(LinkKind::kHello, 0, hello); }

void DaemonLink::SendReport(uint64_t request_id, const SessionSnapshot& snapshot, bool has_ended) {
  control::LinkSessionReport report{};
  report.identity.session_id = snapshot.identity.session_id;
  report.identity.opened_ns = MonotonicNs() - static_cast<uint64_t>(snapshot.age.count());
  report.identity.pid = snapshot.identity.pid;
  report.identity.uid = snapshot.identity.uid;
  report.identity.gid = snapshot.identity.gid;
  report.identity.priority_class = static_cast<uint32_t>(snapshot.identity.priority_class);
  report.identity.weight = snapshot.identity.weight;
  report.identity.level = static_cast<uint16_t>(snapshot.identity.level);
  report.identity.keeps_kernels = snapshot.identity.keeps_kernels ? 1 : 0;
  report.identity.window = static_cast<uint8_t>(snapshot.identity.window);
  report.identity.turnaround_ns = static_cast<uint64_t>(snapshot.identity.turnaround.count());
  if (snapshot.identity.slo) {
    report.identity.slo_latency_ns = static_cast<uint64_t>(snapshot.identity.slo->latency.count());
    report.identity.slo_percentile = snapshot.identity.slo->percentile;
  }
  report.identity.grant_id = snapshot.identity.grant_id;
  report.identity.device_memory_bytes = snapshot.identity.device_memory_bytes;
  report.identity.share_permille = snapshot.identity.share_permille;
  report.identity.only_starts = snapshot.identity.only_starts ? 1 : 0;
  report.identity.graphs = static_cast<uint16_t>(snapshot.identity.graphs);
  report.identity.owner_uid = snapshot.identity.owner_uid.value_or(control::kNobody);
  CopyText(snapshot.identity.gpus, report.identity.gpus);
  CopyText(snapshot.identity.tenant_name, report.identity.tenant_name);
  report.figures = snapshot.figures;
  report.has_ended = has_ended ? 1 : 0;
  Send(LinkKind::kSessionReport, request_id, report);
}

void DaemonLink::SendRefusedFunctions(const std::vector<RefusedFunction>& functions) {
  for (const RefusedFunction& function : functions) {
    control::LinkRefusedFunction message{};
    message.symbol_index = function.symbol_index;
    message.num_calls = function.num_calls;
    Send(LinkKind::kRefusedFunction, 0, message);
  }
}

void DaemonLink::SendKernels(uint64_t request_id, const std::vector<KernelReport>& kernels) {
  const size_t count = std::min(kernels.size(), control::kMaxKernelReports);
  for (const KernelReport& kernel : std::span(kernels).first(count)) {
    control::LinkKernelReport report{};
    std::copy(kernel.shape.grid.begin(), kernel.shape.grid.end(), report.grid);
    std::copy(kernel.shape.block.begin(), kernel.shape.block.end(), report.block);
    report.shared_bytes = kernel.shape.shared_bytes;
    report.form = static_cast<uint32_t>(kernel.chosen.candidate.form);
    report.degree = kernel.chosen.candidate.degree;
    report.is_turnaround_measured = kernel.chosen.is_turnaround_measured ? 1 : 0;
    report.num_launches = kernel.num_launches;
    report.gpu_time_ns = static_cast<uint64_t>(kernel.gpu_time.count());
    report.duration_ns = static_cast<uint64_t>(kernel.chosen.duration.count());
    report.turnaround_ns = static_cast<uint64_t>(kernel.chosen.turnaround.count());
    report.original_duration_ns = static_cast<uint64_t>(kernel.original_duration.count());
    CopyText(kernel.kernel, report.kernel);
    CopyText(kernel.remark, report.remark);
    Send(LinkKind::kKernelReport, request_id, report);
  }
}

void DaemonLink::SendWindowShapes(uint64_t request_id, std::span<const control::WindowShapeFigures> shapes) {
  for (const control::WindowShapeFigures& shape : shapes) {
    Send(LinkKind::kWindowShape, request_id, control::LinkWindowShape{{}, shape});
  }
}

void DaemonLink::SendGraphs(uint64_t request_id, std::span<const control::GraphFigures> graphs) {
  for (const control::GraphFigures& graph : graphs) {
    Send(LinkKind::kGraph, request_id, control::LinkGraph{{}, graph});
  }
}

void DaemonLink::SendReportEnd(uint64_t request_id, size_t num_sessions) {
  control::LinkReportEnd end{};
  end.num_sessions = num_sessions;
  Send(LinkKind::kReportEnd, request_id, end);
}

void DaemonLink::SendPriorityReply(uint64_t request_id, const Status& status) {
  control::LinkSetPriorityReply reply{};
  reply.status_code = static_cast<uint32_t>(status.code());
  CopyText(status.message(), reply.error);
  Send(LinkKind::kSetPriorityReply, request_id, reply);
}

void DaemonLink::SendTimeSlices(const GpuChannelGroups::TimeSlices& slices, const ContextStates& contexts) {
  control::LinkTimeSlices message{};
  message.shortest_us = static_cast<uint64_t>(slices.shortest.count());
  message.longest_us = static_cast<uint64_t>(slices.longest.count());
  message.num_groups = static_cast<uint32_t>(slices.num_groups);
  message.num_refused = static_cast<uint32_t>(slices.num_refused);
  message.num_deschedulings = contexts.num_deschedulings;
  message.num_standstills = contexts.num_standstills;
  message.num_refreshes = contexts.num_refreshes;
  message.descheduling = contexts.descheduling;
  message.has_contexts = contexts.has_any ? 1 : 0;
  message.used_gpus = contexts.used_devices;
  Send(LinkKind::kTimeSlices, 0, message);
}

void DaemonLink::SendGpus(uint32_t driver_version, const std::vector<control::LinkGpu>& gpus) {
  control::LinkGpus message{};
  const size_t count = std::min(gpus.size(), control::kMostGpus);
  message.num_gpus = static_cast<uint32_t>(count);
  message.driver_version = driver_version;
  for (size_t i = 0; i < count; ++i) std::memcpy(message.uuid[i], gpus[i].uuid, sizeof(gpus[i].uuid));
  Send(LinkKind::kGpus, 0, message);
  for (size_t i = 0; i < count; ++i) Send(LinkKind::kGpu, 0, gpus[i]);
}

void DaemonLink::SendLongBlocks(uint64_t session_id, const std::string& kernel, std::chrono::nanoseconds left) {
  control::LinkLongBlocks message{};
  message.session_id = session_id;
  message.left_ns = static_cast<uint64_t>(left.count());
  CopyText(kernel, message.kernel);
  Send(LinkKind::kLongBlocks, 0, message);
}

void DaemonLink::SendFaulted(const std::string& reason) {
  control::LinkFaulted faulted{};
  CopyText(reason, faulted.reason);
  Send(LinkKind::kFaulted, 0, faulted);
}

void DaemonLink::SendIdle() { Send(LinkKind::kIdle, 0, control::LinkSignal{}); }

void DaemonLink::SendLeaving() { Send(LinkKind::kLeaving, 0, control::LinkSignal{}); }

}  // namespace tally::server
