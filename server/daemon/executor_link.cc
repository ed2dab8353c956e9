#include "server/daemon/executor_link.h"

#include <fcntl.h>

#include <algorithm>
#include <cstring>
#include <span>

#include "base/log.h"
#include "base/unix_socket.h"
#include "proto/driver/generated/driver_symbols.h"

namespace tally::server {
namespace {

using control::LinkKind;

template <typename Message>
Status Send(int socket, LinkKind kind, uint64_t request_id, Message message, std::span<const int> fds = {}) {
  message.header = {control::kLinkMagic, static_cast<uint32_t>(kind), request_id};
  return SendMessage(socket, std::as_bytes(std::span(&message, 1)), fds);
}

template <typename Message>
bool Read(std::span<const std::byte> bytes, Message& into) {
  if (bytes.size() != sizeof(Message)) return false;
  std::memcpy(&into, bytes.data(), sizeof(Message));
  return true;
}

template <size_t size>
bool IsTerminated(const char (&text)[size]) {
  return std::memchr(text, '\0', size) != nullptr;
}

}  // namespace

Result<std::shared_ptr<ExecutorLink>> ExecutorLink::Create(EventLoop& loop, UniqueFd socket, Events events) {
  if (::fcntl(socket.get(), F_SETFL, O_NONBLOCK) != 0) return std::unexpected(StatusFromErrno(errno, "fcntl"));
  const int fd = socket.get();
  std::shared_ptr<ExecutorLink> link(new ExecutorLink(loop, std::move(socket), std::move(events)));
  std::weak_ptr<ExecutorLink> weak = link;
  const Status watched = loop.Watch(fd, [weak] {
    if (const auto alive = weak.lock()) alive->OnReadable();
  });
  if (!watched.ok()) return std::unexpected(watched);
  return link;
}

ExecutorLink::~ExecutorLink() { Close(); }

void ExecutorLink::Close() {
  if (!socket_.valid()) return;
  loop_.Unwatch(socket_.get());
  socket_.Reset();
}

void ExecutorLink::OnReadable() {
  while (socket_.valid()) {
    const auto message = ReceiveMessage(socket_.get(), std::chrono::milliseconds(0));
    if (!message && message.error().code() == StatusCode::kDeadlineExceeded) return;
    if (!message || !Dispatch(message->bytes)) {
      if (message) LOG_ERROR("an executor sent a message that is not understood: its connection is closed");
      Close();
      events_.on_closed();
      return;
    }
  }
}

bool ExecutorLink::Dispatch(std::span<const std::byte> bytes) {
  control::LinkHeader header{};
  if (bytes.size() < sizeof(header)) return false;
  std::memcpy(&header, bytes.data(), sizeof(header));
  if (header.magic != control::kLinkMagic) return false;
  switch (static_cast<LinkKind>(header.kind)) {
    case LinkKind::kHello: {
      control::LinkHello hello{};
      if (!Read(bytes, hello) || !IsTerminated(hello.domain_name) || !IsTerminated(hello.policy_name) ||
          !IsTerminated(hello.driver_name) || !IsTerminated(hello.error)) {
        return false;
      }
      events_.on_hello(hello);
      return true;
    }
    case LinkKind::kSessionReport: {
      control::LinkSessionReport report{};
      if (!Read(bytes, report) || !IsTerminated(report.identity.tenant_name)) return false;
      events_.on_report(report);
      return true;
    }
    case LinkKind::kRefusedFunction: {
      control::LinkRefusedFunction refused{};
      if (!Read(bytes, refused) || refused.symbol_index >= kNumDriverSymbols) return false;
      events_.on_refused_function(refused.symbol_index, refused.num_calls);
      return true;
    }
    case LinkKind::kKernelReport: {
      control::LinkKernelReport report{};
      if (!Read(bytes, report) || !IsTerminated(report.kernel) || !IsTerminated(report.remark)) return false;
      events_.on_kernel(report);
      return true;
    }
    case LinkKind::kWindowShape: {
      control::LinkWindowShape shape{};
      if (!Read(bytes, shape)) return false;
      events_.on_window_shape(shape.shape);
      return true;
    }
    case LinkKind::kGraph: {
      control::LinkGraph graph{};
      if (!Read(bytes, graph)) return false;
      events_.on_graph(graph.graph);
      return true;
    }
    case LinkKind::kTimeSlices: {
      control::LinkTimeSlices slices{};
      if (!Read(bytes, slices)) return false;
      events_.on_time_slices(slices);
      return true;
    }
    case LinkKind::kGpus: {
      control::LinkGpus gpus{};
      if (!Read(bytes, gpus) || gpus.num_gpus > control::kMostGpus) return false;
      events_.on_gpus(gpus);
      return true;
    }
    case LinkKind::kGpu: {
      control::LinkGpu gpu{};
      if (!Read(bytes, gpu) || gpu.ordinal >= control::kMostGpus || !IsTerminated(gpu.name)) return false;
      events_.on_gpu(gpu);
      return true;
    }
    case LinkKind::kReportEnd: {
      control::LinkReportEnd end{};
      if (!Read(bytes, end)) return false;
      events_.on_report_end(end.header.request_id);
      return true;
    }
    case LinkKind::kSetPriorityReply: {
      control::LinkSetPriorityReply reply{};
      if (!Read(bytes, reply) || !IsTerminated(reply.error)) return false;
      events_.on_set_priority_reply(reply.header.request_id,
                                    Status(static_cast<StatusCode>(reply.status_code), reply.error));
      return true;
    }
    case LinkKind::kLongBlocks: {
      control::LinkLongBlocks found{};
      if (!Read(bytes, found) || !IsTerminated(found.kernel)) return false;
      events_.on_long_blocks(found);
      return true;
    }
    case LinkKind::kFaulted: {
      control::LinkFaulted faulted{};
      if (!Read(bytes, faulted) || !IsTerminated(faulted.reason)) return false;
      events_.on_faulted(faulted.reason);
      return true;
    }
    case LinkKind::kIdle:
      events_.on_idle();
      return true;
    case LinkKind::kLeaving:
      events_.on_leaving();
      return true;
    case LinkKind::kAddSession:
    case LinkKind::kQuery:
    case LinkKind::kQueryKernels:
    case LinkKind::kQueryWindowShapes:
    case LinkKind::kQueryGraphs:
    case LinkKind::kDrawGraph:
    case LinkKind::kSetTuning:
    case LinkKind::kSetTimeSlice:
    case LinkKind::kSetPriority:
    case LinkKind::kEndSession:
    case LinkKind::kShutdown:
    case LinkKind::kTrace:
    case LinkKind::kEndTrace:
      return false;  // ours to send
  }
  return false;
}

Status ExecutorLink::SendAddSession(const control::SessionIdentity& identity, int session_socket) {
  control::LinkAddSession message{};
  message.identity = identity;
  const int fds[] = {session_socket};
  return Send(socket_.get(), LinkKind::kAddSession, 0, message, fds);
}

Status ExecutorLink::SendSetPriority(uint64_t request_id, uint64_t session_id, const control::ShareChange& change) {
  control::LinkSetPriority message{};
  message.session_id = session_id;
  message.priority_class = static_cast<uint32_t>(change.priority_class);
  message.weight = change.weight.value_or(control::kAsItIs);
  message.level = change.level.value_or(control::kAsItIs);
  message.turnaround_ns =
      change.turnaround ? static_cast<uint64_t>(change.turnaround->count()) : control::kTurnaroundAsItIs;
  return Send(socket_.get(), LinkKind::kSetPriority, request_id, message);
}

Status ExecutorLink::SendSetTuning(const scheduler::Tuning& tuning) {
  control::LinkSetTuning message{};
  message.turnaround_ns = static_cast<uint64_t>(tuning.turnaround_threshold.count());
  message.min_hold_off_ns = static_cast<uint64_t>(tuning.min_hold_off.count());
  message.max_hold_off_ns = static_cast<uint64_t>(tuning.max_hold_off.count());
  message.target_drain_ns = static_cast<uint64_t>(tuning.target_drain.count());
  return Send(socket_.get(), LinkKind::kSetTuning, 0, message);
}

Status ExecutorLink::SendSetTimeSlice(std::span<const std::chrono::microseconds> slices, bool is_left_to_slices) {
  control::LinkSetTimeSlice message{};
  message.num_gpus = static_cast<uint32_t>(std::min(slices.size(), control::kMostGpus));
  for (size_t i = 0; i < message.num_gpus; ++i) message.slice_us[i] = static_cast<uint64_t>(slices[i].count());
  message.is_left_to_slices = is_left_to_slices ? 1 : 0;
  return Send(socket_.get(), LinkKind::kSetTimeSlice, 0, message);
}

Status ExecutorLink::SendEndSession(uint64_t session_id, const std::string& reason) {
  control::LinkEndSession message{};
  message.session_id = session_id;
  std::memcpy(message.reason, reason.data(), std::min(reason.size(), sizeof(message.reason) - 1));
  return Send(socket_.get(), LinkKind::kEndSession, 0, message);
}

Status ExecutorLink::SendTrace(uint64_t request_id, std::chrono::nanoseconds duration, std::optional<uint32_t> uid,
                               int file) {
  control::LinkTrace message{};
  message.duration_ns = static_cast<uint64_t>(duration.count());
  message.uid = uid.value_or(control::kEverybody);
  const int fds[] = {file};
  return Send(socket_.get(), LinkKind::kTrace, request_id, message, fds);
}

Status ExecutorLink::SendDrawGraph(uint64_t request_id, uint64_t session_id, uint32_t number, int file) {
  control::LinkDrawGraph message{};
  message.session_id = session_id;
  message.number = number;
  const int fds[] = {file};
  return Send(socket_.get(), LinkKind::kDrawGraph, request_id, message, fds);
}

Status ExecutorLink::SendSignal(control::LinkKind kind, uint64_t request_id) {
  return Send(socket_.get(), kind, request_id, control::LinkSignal{});
}

}  // namespace tally::server
