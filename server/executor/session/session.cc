#include "server/executor/session/session.h"

#include <fmt/format.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <new>

#include "base/log.h"
#include "base/thread.h"
#include "base/unix_socket.h"
#include "proto/control/tenant_page_name.h"

namespace tally::server {
namespace {

const SteadyClock kClock;
// A client asks as soon as it has its socket.
constexpr std::chrono::milliseconds kRefusalPatience{1000};

std::shared_ptr<MemoryQuota> QuotaOf(const ExecutorCore& core, const SessionIdentity& identity,
                                     const std::shared_ptr<TenantPage>& page) {
  return std::make_shared<MemoryQuota>(core.devices->count(), core.limits.device_memory_bytes,
                                       identity.device_memory_bytes,
                                       identity.device_memory_bytes != 0 ? page : nullptr);
}

shm::SessionHeader& HeaderOf(const MappedRegion& region) {
  return *reinterpret_cast<shm::SessionHeader*>(region.data());
}

}  // namespace

Result<std::unique_ptr<Session>> Session::Create(ExecutorCore& core, UniqueFd socket, SessionIdentity identity,
                                                 OnEnd on_end) {
  auto fd = CreateSealedMemfd("tally-session", shm::kSessionRegionBytes);
  if (!fd) return std::unexpected(fd.error());
  auto region = MappedRegion::Map(fd->get(), shm::kSessionRegionBytes);
  if (!region) return std::unexpected(region.error());
  std::shared_ptr<TenantPage> tenant_page;
  if (identity.HasTenantPage()) {
    auto opened =
        core.tenant_pages.Open(control::TenantPageName(identity.grant_id, identity.uid, identity.tenant_name));
    if (!opened) return std::unexpected(opened.error());
    tenant_page = std::move(*opened);
  }
  auto* header = new (region->data()) shm::SessionHeader{};
  header->magic = shm::kSessionMagic;
  header->protocol_version = shm::kProtocolVersion;
  new (region->data() + shm::kArrivalOffset) shm::ArrivalPage{};
  return std::unique_ptr<Session>(new Session(core, std::move(socket), std::move(identity), std::move(on_end),
                                              std::move(*fd), std::move(*region), tenant_page));
}

Session::Session(ExecutorCore& core, UniqueFd socket, SessionIdentity identity, OnEnd on_end, UniqueFd region_fd,
                 MappedRegion region, const std::shared_ptr<TenantPage>& tenant_page)
    : core_(core),
      socket_(std::move(socket)),
      on_end_(std::move(on_end)),
      region_fd_(std::move(region_fd)),
      region_(std::move(region)),
      callbacks_(std::make_shared<CallbackQueue>(kClock)),
      state_(core, callbacks_, identity.uid, identity.gpus, QuotaOf(core, identity, tenant_page)),
      surroundings_{state_, sequencer_, HeaderOf(region_), stopping_,
                    [this](const std::string& reason) { Evict(reason); }},
      identity_(std::move(identity)) {
  state_.keeps_kernels = identity_.keeps_kernels;
  if (core.are_classes_mixed) {
    state_.runs_owner->name = fmt::format("session {} ({})", identity_.session_id, identity_.tenant_name);
    if (core.on_long_blocks) {
      state_.runs_owner->on_long_blocks = std::bind_front(core.on_long_blocks, identity_.session_id);
    }
  }
  if (identity_.share_permille < scheduler::kWholeShare) state_.CapShare(identity_.share_permille, tenant_page);
  state_.OpenWindow(identity_.window);
  state_.OpenGraphs(identity_.graphs);
  state_.has_client_left = [this] { return PeerHungUp(socket_.get()); };
  state_.on_lost = [this](CUresult error) { SetStickyError(error); };
  if (identity_.slo) state_.slo = std::make_unique<SloWatch>(*identity_.slo, [this] { core_.ReportThrottleLevel(); });
  state_.trace.Enter(core_.trace, identity_.session_id, identity_.uid, identity_.owner_uid);
  state_.times_requests = state_.slo != nullptr || core_.admission->wants_requests();
  SetPriority({});
}

Session::~Session() { Join(); }

Status Session::Start() {
  auto thread = StartThread(fmt::format("session-{}", identity_.session_id % 1000000), [this] { Run(); });
  if (!thread) return thread.error();
  thread_ = std::move(*thread);
  return OkStatus();
}

void Session::Refuse() {
  const auto message = ReceiveMessage(socket_.get(), kRefusalPatience);
  shm::SessionRequest request{};
  if (!message || message->bytes.size() != sizeof(request)) return;
  std::memcpy(&request, message->bytes.data(), sizeof(request));
  static_cast<void>(Reply(request, CUDA_ERROR_OUT_OF_MEMORY));
}

void Session::Join() {
  if (thread_.joinable()) thread_.join();
}

void Session::Evict(const std::string& reason) {
  {
    const std::lock_guard lock(mutex_);
    if (evict_reason_.empty()) evict_reason_ = reason;
  }
  SetStickyError(CUDA_ERROR_CONTEXT_IS_DESTROYED);
  ::shutdown(socket_.get(), SHUT_RDWR);  // wakes the socket thread, tells the client
}

void Session::SetStickyError(CUresult error) {
  uint32_t none = 0;
  HeaderOf(region_).sticky_error.compare_exchange_strong(none, static_cast<uint32_t>(error));
}

void Session::SetPriority(const control::ShareChange& change) {
  const std::lock_guard lock(mutex_);
  if (change.priority_class != shm::PriorityClass::kDefault) identity_.priority_class = change.priority_class;
  identity_.weight = std::clamp(change.weight.value_or(identity_.weight), 1u, scheduler::kMaxWeight);
  identity_.level = std::min<uint32_t>(change.level.value_or(identity_.level), scheduler::kNumLevels - 1);
  const bool is_high = identity_.priority_class == shm::PriorityClass::kHighPriority;
  identity_.turnaround = change.turnaround.value_or(identity_.turnaround);
  state_.turnaround_ns = identity_.turnaround.count();
  // So far it had the other class, if that changes.
  for (const auto& clock : state_.busy.clocks()) clock->Measure(state_.is_high_priority.load());
  state_.admission_tenant->SetShare(
      {is_high ? scheduler::TenantClass::kHighPriority : scheduler::TenantClass::kBestEffort,
       static_cast<uint8_t>(identity_.level), identity_.weight});
  state_.runs_owner->is_high_priority = is_high;
  state_.is_high_priority = is_high;
}

void Session::RequireHostFunctions(TimePoint now) {
  const std::optional<TimePoint> since = callbacks_->WaitsSince();
  if (!since) return;
  using std::chrono::duration_cast, std::chrono::seconds;
  const auto waited = now - *since;
  if (waited >= core_.limits.host_function_timeout) {
    Evict(fmt::format("the client did not run a host function within {} s", duration_cast<seconds>(waited).count()));
  } else if (waited >= core_.limits.host_function_patience &&
             core_.context_calls.HasOther(&state_, now - core_.limits.host_function_patience)) {
    Evict(fmt::format("the client did not run a host function within {} s, and another program's call waited for it",
                      duration_cast<seconds>(waited).count()));
  }
}

void Session::CountBusyTime(control::SessionFigures& figures) const {
  const std::span<uint64_t> entries = figures.entries("busy_ns");
  const bool is_high_priority = state_.is_high_priority.load(std::memory_order_relaxed);
  const size_t num_devices = std::min(state_.busy.clocks().size(), control::kMostGpus);
  for (size_t device = 0; device < num_devices; ++device) {
    const BusyTimes times = state_.busy.clocks()[device]->Measure(is_high_priority);
    entries[control::GpuEntry(device, false)] = static_cast<uint64_t>(times[0].count());
    entries[control::GpuEntry(device, true)] = static_cast<uint64_t>(times[1].count());
  }
}

SessionSnapshot Session::Snapshot() const {
  SessionSnapshot snapshot;
  {
    const std::lock_guard lock(mutex_);
    snapshot.identity = identity_;
  }
  snapshot.age = std::chrono::steady_clock::now() - started_;
  control::SessionFigures& figures = snapshot.figures;
  state_.counters.AddTo(figures);
  state_.admission_tenant->figures.AddTo(figures);
  state_.runs_owner->figures.AddTo(figures);
  figures["device_memory_bytes"] = state_.memory.device_bytes();
  figures["pinned_memory_bytes"] = state_.memory.pinned_bytes();
  std::ranges::transform(state_.preemptibility.Figures(), figures.entries("preemptibility_ns").begin(),
                         [](std::chrono::nanoseconds time) { return static_cast<uint64_t>(time.count()); });
  CountBusyTime(figures);
  if (state_.slo != nullptr) {
    const SloWatch::Figures requests = state_.slo->figures();
    figures["slo_requests"] = requests.num_requests;
    figures["slo_observed_ns"] = static_cast<uint64_t>(requests.observed.count());
    static_assert(scheduler::SloFeedback::kSteps == control::kThrottleSteps);
    figures["slo_caution"] = static_cast<uint64_t>(requests.throttle_level);
  }
  snapshot.num_channels = num_channels_.load(std::memory_order_relaxed);
  const State phase = phase_.load(std::memory_order_acquire);
  snapshot.has_departed = phase >= State::kDraining;
  snapshot.is_draining = phase == State::kDraining;
  return snapshot;
}

void Session::Run() {
  ServeSocket();
  End();
}

void Session::ServeSocket() {
  for (;;) {
    auto message = ReceiveMessage(socket_.get(), std::chrono::milliseconds(-1));
    if (!message) {
      if (message.error().code() != StatusCode::kUnavailable) Evict(message.error().message());
      return;
    }
    shm::SessionRequest request{};
    if (message->bytes.size() != sizeof(request)) {
      Evict("session socket: a message of the wrong size");
      return;
    }
    std::memcpy(&request, message->bytes.data(), sizeof(request));
    if (const Status status = ServeRequest(request, message->fds); !status.ok()) {
      if (status.code() == StatusCode::kInvalidArgument) Evict("session socket: " + status.message());
      return;
    }
  }
}

Status Session::Reply(const shm::SessionRequest& request, CUresult result, uint64_t value0, uint64_t value1, int fd) {
  const shm::SessionReply reply{request.kind, static_cast<uint32_t>(result), {value0, value1, 0}};
  const std::span<const int> fds = fd >= 0 ? std::span(&fd, 1) : std::span<const int>();
  return SendMessage(socket_.get(), std::as_bytes(std::span(&reply, 1)), fds);
}

uint64_t Session::WhatIsWanted() const {
  uint64_t wanted = shm::kTakesArrivals | (core_.wants_ptx ? shm::kWantsPtx : 0);
  if (state_.window != nullptr) wanted |= shm::kWantsPtx | shm::kWantsDeclarations;
  if (state_.spread_memory != nullptr) wanted |= shm::kWantsPtx | shm::kWantsTasks;
  return wanted;
}

Status Session::OpenArrivals(const shm::SessionRequest& request) {
  auto* const page = reinterpret_cast<shm::ArrivalPage*>(region_.data() + shm::kArrivalOffset);
  const Status opened = state_.ExpectWork(*page);
  if (opened.ok()) return Reply(request, CUDA_SUCCESS);
  return Reply(request,
               opened.code() == StatusCode::kResourceExhausted ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_ERROR_NOT_SUPPORTED);
}

Status Session::ServeRequest(const shm::SessionRequest& request, const std::vector<UniqueFd>& fds) {
  const bool is_attached = phase_.load(std::memory_order_relaxed) == State::kActive;
  const auto kind = static_cast<shm::SessionRequestKind>(request.kind);
  if ((kind == shm::SessionRequestKind::kAttach) == is_attached) {
    return Status(StatusCode::kInvalidArgument, "attach comes first, and once");
  }
  if (fds.size() != (kind == shm::SessionRequestKind::kRegisterHost ? 1 : 0)) {
    return Status(StatusCode::kInvalidArgument, "a descriptor too many, or one too few");
  }
  switch (kind) {
    case shm::SessionRequestKind::kAttach:
      phase_.store(State::kActive, std::memory_order_release);
      return Reply(request, CUDA_SUCCESS, shm::kSessionRegionBytes, WhatIsWanted(), region_fd_.get());
    case shm::SessionRequestKind::kOpenChannel:
      return OpenChannel(request);
    case shm::SessionRequestKind::kAllocateHost:
      return AllocateHost(request);
    case shm::SessionRequestKind::kRegisterHost:
      return RegisterHost(request, fds.front().get());
    case shm::SessionRequestKind::kOpenArrivals:
      return OpenArrivals(request);
    case shm::SessionRequestKind::kRejectHost:
      if (!state_.memory.Take(request.value[0], MemoryKind::kPinned, MemoryKind::kPinned)) {
        return Reply(request, CUDA_ERROR_INVALID_VALUE);
      }
      state_.host_memory.Reject(request.value[0]);
      return Reply(request, CUDA_SUCCESS);
  }
  return Status(StatusCode::kInvalidArgument, "unknown request");
}

Status Session::OpenChannel(const shm::SessionRequest& request) {
  const auto index = static_cast<uint32_t>(channels_.size());
  if (index >= shm::kMaxChannelsPerSession || !state_.held.Take(Held::kChannels, 1)) {
    return Reply(request, CUDA_ERROR_OUT_OF_MEMORY);
  }
  const auto refuse = [&](const Status& reason) {
    LOG_WARNING("cannot open a channel: {}", reason.message());
    state_.held.Return(Held::kChannels, 1);
    return Reply(request, CUDA_ERROR_OUT_OF_MEMORY);
  };
  auto region = ChannelRegion::Create(index);
  if (!region) return refuse(region.error());
  auto channel = std::make_unique<Channel>(surroundings_, index, std::move(*region));
  if (const Status started = channel->Start(); !started.ok()) return refuse(started);
  channels_.push_back(std::move(channel));
  num_channels_.store(index + 1, std::memory_order_relaxed);
  return Reply(request, CUDA_SUCCESS, shm::kChannelRegionBytes, index, channels_.back()->fd());
}

CUresult Session::PrepareHostMemory(uint64_t size_bytes, uint64_t ordinal) {
  if (const CUresult fault = state_.fault(); fault != CUDA_SUCCESS) return fault;
  if (size_bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  CUcontext context = nullptr;
  const CUresult result = core_.devices->Context(static_cast<int>(ordinal), &context);
  return result == CUDA_SUCCESS ? core_.driver.cuCtxSetCurrent(context) : result;
}

Status Session::AllocateHost(const shm::SessionRequest& request) {
  const uint64_t size_bytes = request.value[0];
  const uint64_t ordinal = request.value[1];
  if (!state_.gpus.Has(ordinal)) {
    return Status(StatusCode::kInvalidArgument, "unknown device");
  }
  CUresult result = PrepareHostMemory(size_bytes, ordinal);
  if (result != CUDA_SUCCESS) return Reply(request, result);
  auto allocation = state_.host_memory.Allocate(size_bytes, &result);
  if (!allocation) {
    LOG_WARNING("pinned memory: {}", allocation.error().message());
    return Reply(request, result);
  }
  state_.memory.Add({allocation->address, allocation->size_bytes, MemoryKind::kPinned, static_cast<uint32_t>(ordinal)});
  return Reply(request, CUDA_SUCCESS, allocation->address, allocation->size_bytes, allocation->fd.get());
}

Status Session::RegisterHost(const shm::SessionRequest& request, int fd) {
  const uint64_t size_bytes = request.value[1];
  if (!state_.gpus.Has(request.device)) {
    return Status(StatusCode::kInvalidArgument, "unknown device");
  }
  struct stat file {};
  if (::fstat(fd, &file) == 0 && !core_.collectives.MayUse(&state_, {file.st_dev, file.st_ino})) {
    LOG_ERROR("{}", kSecondRank);
    return Reply(request, CUDA_ERROR_NOT_PERMITTED);
  }
  CUresult result = PrepareHostMemory(size_bytes, request.device);
  if (result != CUDA_SUCCESS) return Reply(request, result);
  const auto address = state_.host_memory.Register(fd, request.value[2], size_bytes, request.value[0], &result);
  if (!address) {
    LOG_WARNING("registered memory: {}", address.error().message());
    return Reply(request, result);
  }
  if (!state_.memory.Add({*address, size_bytes, MemoryKind::kPinned, request.device})) {
    state_.host_memory.Free(*address);
    return Reply(request, CUDA_ERROR_OUT_OF_MEMORY);
  }
  return Reply(request, CUDA_SUCCESS, *address);
}

void Session::End() {
  phase_.store(State::kDraining, std::memory_order_release);
  stopping_.store(true, std::memory_order_seq_cst);
  callbacks_->Close();
  state_.runs_owner->has_left = true;
  state_.admission_tenant->Leave();
  sequencer_.WakeAll();
  for (const auto& channel : channels_) channel->Wake();
  for (const auto& channel : channels_) channel->Join();
  SessionEnd end;
  end.last = Snapshot();
  if (state_.expected != nullptr) state_.expected->Stop();
  state_.WaitForStreams(shm::kNoContext);
  phase_.store(State::kReleasing, std::memory_order_release);
  state_.Destroy();
  CountBusyTime(end.last.figures);  // until what it had on the GPU was over
  channels_.clear();
  state_.held.ReturnAll();
  end.identity = end.last.identity;
  {
    const std::lock_guard lock(mutex_);
    end.evicted = !evict_reason_.empty();
    end.reason = end.evicted ? evict_reason_ : "the client closed the connection";
  }
  phase_.store(State::kClosed, std::memory_order_release);
  on_end_(end);
}

}  // namespace tally::server
