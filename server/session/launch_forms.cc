#include "server/session/launch_forms.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <thread>

#include "proto/device/gate_abi.h"
#include "proto/device/variant_abi.h"
#include "scheduler/grid_slices.h"
#include "server/session/gated_dispatch.h"
#include "server/variants/variant_registry.h"

namespace tally::server {
namespace {

using scheduler::LaunchCandidate;
using scheduler::LaunchForm;

LaunchKind KindOfOriginal(LaunchParameters& request) {
  const shm::Launch& launch = request.launch();
  return KindOfKernel(request.kernel().ForLaunch(), launch.grid, launch.block, launch.shared_bytes);
}

// Past the gate.
CUresult CallDriver(ServedLane& lane, Stream& stream, LaunchParameters& request) {
  const shm::Launch& launch = request.launch();
  const CUfunction function = request.kernel().ForLaunch();
  const DriverTable& driver = lane.driver();
  if ((launch.flags & shm::kLaunchEx) != 0) {
    const CUlaunchConfig config = request.Config(stream.real);
    return driver.cuLaunchKernelEx(&config, function, request.parameters(), request.extra());
  }
  if ((launch.flags & shm::kLaunchCooperative) != 0) {
    return driver.cuLaunchCooperativeKernel(function, launch.grid[0], launch.grid[1], launch.grid[2], launch.block[0],
                                            launch.block[1], launch.block[2], launch.shared_bytes, stream.real,
                                            request.parameters());
  }
  return driver.cuLaunchKernel(function, launch.grid[0], launch.grid[1], launch.grid[2], launch.block[0],
                               launch.block[1], launch.block[2], launch.shared_bytes, stream.real, request.parameters(),
                               request.extra());
}

CUresult LaunchOriginal(ServedLane& lane, Stream& stream, LaunchParameters& request) {
  if (const CUresult r = stream.Seal(); r != CUDA_SUCCESS) return r;
  const GatedDispatch dispatch(lane, stream, KindOfOriginal(request));
  return dispatch.is_cancelled() ? GatedDispatch::kCancelled : CallDriver(lane, stream, request);
}

// Whether this launch could take another form at all.
bool MayVary(ServedLane& lane, const Stream& stream, LaunchParameters& request) {
  const SessionState& session = lane.session();
  return session.core.variants != nullptr && !session.keeps_kernels &&
         !session.is_high_priority.load(std::memory_order_relaxed) &&
         (request.launch().flags & shm::kLaunchCooperative) == 0 &&
         request.parameter_block().size() >= request.kernel().parameter_bytes && !stream.context->IsCapturing(stream);
}

const LoadedImage& OwnerOf(const Kernel& kernel) {
  return kernel.image->library_image != nullptr ? *kernel.image->library_image : *kernel.image;
}

std::string NameOf(const DriverTable& driver, const Kernel& kernel) {
  const char* name = nullptr;
  if (kernel.function != nullptr) {
    driver.cuFuncGetName(&name, kernel.function);
  } else {
    driver.cuKernelGetName(&name, kernel.kernel);
  }
  return name != nullptr ? name : "";
}

FileCache::Key KeyOf(const LoadedImage& image, uint32_t arch) {
  if (!HasPtx(PartsOf(*image.bytes), arch)) return {};
  if (!image.bytes->key) image.bytes->key = FileCache::KeyOf({image.bytes->bytes});
  return *image.bytes->key;
}

// What a launch in a queue that may be stopped is asked for beyond its grid.
struct GateNeeds {
  bool is_possible = true;
  bool has_clusters = false;
  bool is_programmatic = false;  // may begin before the launch in front of it has ended
  uint32_t cluster_blocks = 0;
};

GateNeeds NeedsOf(std::span<const CUlaunchAttribute> attributes) {
  GateNeeds needs;
  for (const CUlaunchAttribute& attribute : attributes) {
    switch (attribute.id) {
      case CU_LAUNCH_ATTRIBUTE_IGNORE:
      case CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW:
      case CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY:
      case CU_LAUNCH_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE:
      case CU_LAUNCH_ATTRIBUTE_PRIORITY:
      case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP:
      case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN:
      case CU_LAUNCH_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
        break;
      case CU_LAUNCH_ATTRIBUTE_COOPERATIVE:
        needs.is_possible = needs.is_possible && attribute.value.cooperative == 0;
        break;
      case CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION: {
        const auto& size = attribute.value.clusterDim;
        needs.has_clusters = true;
        needs.cluster_blocks = size.x * size.y * size.z;
        break;
      }
      case CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION:
        needs.is_programmatic = attribute.value.programmaticStreamSerializationAllowed != 0;
        break;
      default:  // events that say when it begins, nodes of graphs, clusters of a size that the driver chooses
        needs.is_possible = false;
    }
  }
  if (needs.has_clusters && needs.cluster_blocks == 0) needs.is_possible = false;
  return needs;
}

// Blocks that are done in about this time are promised at once: rarely enough to cost little, and not many more run
// after a stop than would have anyway.
constexpr auto kPromisedAhead = std::chrono::microseconds(20);
constexpr uint64_t kLargestChunk = 16'384;
// A kernel that could not be timed until then is not waited for any longer.
constexpr uint64_t kLaunchesUntilTimed = 16;

uint32_t ChunkFor(uint64_t num_numbers, uint64_t num_resident, std::chrono::nanoseconds duration) {
  if (duration <= duration.zero()) return static_cast<uint32_t>(std::clamp<uint64_t>(num_resident, 1, kLargestChunk));
  const auto in_time = num_numbers * static_cast<uint64_t>(std::chrono::nanoseconds(kPromisedAhead).count()) /
                       static_cast<uint64_t>(duration.count());
  return static_cast<uint32_t>(std::clamp<uint64_t>(in_time, 1, kLargestChunk));
}

// One launch of a best-effort kernel that may vary.
class VaryingLaunch {
 public:
  VaryingLaunch(ServedLane& lane, Stream& stream, LaunchParameters& request, const VariantDevice& device,
                KernelOnDevice& kernel)
      : lane_(lane),
        stream_(stream),
        request_(request),
        registry_(*lane.session().core.variants),
        device_(device),
        kernel_(kernel) {
    const shm::Launch& launch = request.launch();
    std::copy(std::begin(launch.grid), std::end(launch.grid), shape_.grid.begin());
    std::copy(std::begin(launch.block), std::end(launch.block), shape_.block.begin());
    shape_.shared_bytes = launch.shared_bytes;
  }

  CUresult Run() {
    if (const auto& forced = registry_.forced_form()) {
      return RunForced(forced->CandidateOn(device_.num_multiprocessors));
    }
    device_.timer->Collect();
    if (registry_.may_gate()) {
      if (const std::optional<CUresult> result = TryGated()) return *result;
    }
    // All other forms make a launch of their own, or several.
    if (!request_.attributes().empty()) return LaunchOriginal(lane_, stream_, request_);
    const KernelProfile::Plan plan = kernel_.profile->PlanLaunch(shape_, registry_.threshold());
    if (plan.wants_variants) Compile();
    VariantModule* variants =
        plan.wants_candidates || plan.candidate.form != LaunchForm::kOriginal ? Variants() : nullptr;
    if (plan.wants_candidates && variants != nullptr) SetCandidates(*variants, plan.original_duration);
    return RunPlan(plan, variants);
  }

 private:
  // The code of this kernel that has a gate.
  struct Gate {
    CUfunction function = nullptr;
    size_t hidden_offset = 0;
    bool gates_clusters = false;
    bool waits_for_blocks = true;
  };

  // Its own, or that of a variant beside it. Nothing: there is none, or not yet.
  std::optional<Gate> FindGate(VariantModule* variants) {
    const Kernel& kernel = request_.kernel();
    if (kernel.gate) {
      Gate gate{kernel.function, kernel.gate->hidden_offset, kernel.gate->gates_clusters,
                kernel.gate->waits_for_blocks};
      if (gate.function == nullptr &&
          lane_.driver().cuKernelGetFunction(&gate.function, kernel.kernel) != CUDA_SUCCESS) {
        return std::nullopt;
      }
      return gate;
    }
    if (variants == nullptr || !variants->Prepare(variants->gated(), shape_)) return std::nullopt;
    const VariantModule::Form& form = variants->gated();
    return Gate{form.function, form.hidden_offset, form.gates_clusters, form.waits_for_blocks};
  }

  // Nothing: it has no gate, or not yet, or had better be timed first.
  std::optional<CUresult> TryGated() {
    if (device_.gated == nullptr) return std::nullopt;
    const KernelProfile::GatePlan plan = kernel_.profile->PlanGated(shape_);
    if (plan.wants_variants && !request_.kernel().gate) Compile();
    const std::optional<Gate> gate = FindGate(request_.kernel().gate ? nullptr : Variants());
    if (!gate || !Fits(*gate)) return std::nullopt;
    const bool is_timed = plan.original_duration > plan.original_duration.zero();
    if (!is_timed && plan.num_launches < kLaunchesUntilTimed && request_.attributes().empty()) return std::nullopt;
    const uint32_t chunk = ChunkFor(NumNumbers(), NumResident(*gate), plan.original_duration);
    kernel_.profile->CountGated(shape_, chunk);
    return RunGated(*gate, chunk);
  }

  uint64_t NumNumbers() const {
    const GateNeeds needs = NeedsOf(request_.attributes());
    return needs.has_clusters ? shape_.num_blocks() / needs.cluster_blocks : shape_.num_blocks();
  }

  bool Fits(const Gate& gate) const {
    const GateNeeds needs = NeedsOf(request_.attributes());
    if (device_.gated == nullptr || !needs.is_possible) return false;
    if (shape_.num_blocks() > GatedQueue::kMostNumbers / 4) return false;
    if ((needs.has_clusters || needs.is_programmatic) && !gate.gates_clusters) return false;
    return !needs.has_clusters || shape_.num_blocks() % needs.cluster_blocks == 0;
  }

  uint64_t NumResident(const Gate& gate) {
    const uint32_t threads = shape_.block[0] * shape_.block[1] * shape_.block[2];
    const auto [place, is_new] = kernel_.num_resident.try_emplace({threads, shape_.shared_bytes});
    if (is_new) {
      int per_multiprocessor = 0;
      lane_.driver().cuOccupancyMaxActiveBlocksPerMultiprocessor(&per_multiprocessor, gate.function,
                                                                 static_cast<int>(threads), shape_.shared_bytes);
      place->second = static_cast<uint64_t>(per_multiprocessor) * device_.num_multiprocessors;
    }
    return place->second;
  }

  CUresult RunForced(const LaunchCandidate& wanted) {
    if (!request_.attributes().empty() && wanted.form != LaunchForm::kGated) {
      return LaunchOriginal(lane_, stream_, request_);
    }
    const auto wait_until = [](auto condition) {
      while (!condition()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    };
    VariantModule* variants = nullptr;
    const bool is_in_place = wanted.form == LaunchForm::kGated && request_.kernel().gate;
    if (wanted.form != LaunchForm::kOriginal && !is_in_place &&
        HasPtx(PartsOf(*OwnerOf(request_.kernel()).bytes), device_.arch)) {
      if (kernel_.profile->variants() == nullptr) Compile();
      wait_until([&] { return kernel_.profile->variants() != nullptr; });
      Variants();
      wait_until([&] { return kernel_.variants->is_loaded(); });
      variants = Variants();
    }
    device_.timer->Collect();
    return RunPlan(kernel_.profile->PlanForced(shape_, Usable(wanted, variants)), variants);
  }

  void Compile() {
    const LoadedImage& image = OwnerOf(request_.kernel());
    registry_.Compile(kernel_.profile, {.keep = image.bytes,
                                        .image = PartsOf(*image.bytes),
                                        .image_key = kernel_.profile->image(),
                                        .kernel = kernel_.profile->kernel(),
                                        .arch = device_.arch,
                                        .context = device_.context});
  }

  // Null: not there yet.
  VariantModule* Variants() {
    const Kernel& kernel = request_.kernel();
    if (kernel_.variants == nullptr) {
      kernel_.variants = registry_.Load(*kernel_.profile, device_.context, kernel.layout.size());
    }
    if (kernel_.variants == nullptr || !kernel_.variants->is_loaded()) return nullptr;
    if (!kernel_.variants->is_bound()) {
      kernel_.variants->Bind([&](const std::string& name) { return AddressOf(*kernel.image, name); });
    }
    return kernel_.variants.get();
  }

  CUdeviceptr AddressOf(const LoadedImage& image, const std::string& name) const {
    const DriverTable& driver = lane_.driver();
    CUdeviceptr address = 0;
    size_t size_bytes = 0;
    const CUresult result = image.is_library
                                ? driver.cuLibraryGetGlobal(&address, &size_bytes, image.library, name.c_str())
                                : driver.cuModuleGetGlobal_v2(&address, &size_bytes, image.module, name.c_str());
    return result == CUDA_SUCCESS ? address : 0;
  }

  void SetCandidates(VariantModule& variants, std::chrono::nanoseconds original_duration) {
    scheduler::LaunchSize size;
    size.num_blocks = shape_.num_blocks();
    size.num_multiprocessors = device_.num_multiprocessors;
    size.can_slice = registry_.may_slice() && variants.Prepare(variants.slices(), shape_);
    size.max_blocks_per_multiprocessor = 0;
    if (CanYield(variants)) {
      const uint32_t threads = shape_.block[0] * shape_.block[1] * shape_.block[2];
      int resident = 0;
      lane_.driver().cuOccupancyMaxActiveBlocksPerMultiprocessor(
          &resident, variants.workers().function, static_cast<int>(threads),
          shape_.shared_bytes + variants.workers().extra_shared_bytes);
      size.max_blocks_per_multiprocessor = static_cast<uint32_t>(resident);
    }
    kernel_.profile->SetCandidates(shape_, CandidatesFor(size, original_duration, registry_.threshold()));
  }

  bool CanYield(VariantModule& variants) const {
    return registry_.may_yield() && device_.workers != nullptr && WorkerRuns::Fits(shape_.num_blocks(), UINT16_MAX) &&
           variants.Prepare(variants.workers(), shape_);
  }

  // What the profile wants, or the original where this session has no code for it (yet).
  LaunchCandidate Usable(const LaunchCandidate& wanted, VariantModule* variants) {
    if (wanted.form == LaunchForm::kGated) {
      const std::optional<Gate> gate = FindGate(variants);
      return gate && Fits(*gate) ? wanted : LaunchCandidate{};
    }
    if (variants == nullptr) return {};
    if (wanted.form == LaunchForm::kWorkers && CanYield(*variants)) return wanted;
    if (wanted.form == LaunchForm::kSlices && registry_.may_slice() && variants->Prepare(variants->slices(), shape_))
      return wanted;
    return {};
  }

  CUresult RunPlan(const KernelProfile::Plan& plan, VariantModule* variants) {
    const LaunchCandidate candidate = Usable(plan.candidate, variants);
    const bool is_as_planned = candidate == plan.candidate;
    is_sample_ = plan.is_sample && is_as_planned;
    const auto piece = is_as_planned ? plan.piece : std::chrono::nanoseconds(0);
    const CUresult result = RunAs(candidate, piece, variants);
    if (timing_ && result == CUDA_SUCCESS) {
      timing_->End(stream_.real, [profile = kernel_.profile, shape = shape_, candidate](auto duration) {
        profile->OnDuration(shape, candidate, duration);
      });
    }
    return result;
  }

  // Once the gate has let something go: what waiting there takes does not count.
  void BeginTiming() {
    if (!is_sample_ || timing_) return;
    if (auto timing = device_.timer->Begin(stream_.real)) timing_.emplace(std::move(*timing));
  }

  CUresult RunAs(const LaunchCandidate& candidate, std::chrono::nanoseconds piece, VariantModule* variants) {
    switch (candidate.form) {
      case LaunchForm::kSlices:
        return RunSlices(variants->slices(), candidate, piece);
      case LaunchForm::kWorkers:
        return RunWorkers(variants->workers(), candidate);
      case LaunchForm::kGated:
        return RunGated(*FindGate(variants), candidate.degree);
      case LaunchForm::kOriginal:
        break;
    }
    return RunOriginal(piece);
  }

  CUresult RunOriginal(std::chrono::nanoseconds duration) {
    if (const CUresult r = stream_.Seal(); r != CUDA_SUCCESS) return r;
    LaunchKind kind = KindOfOriginal(request_);
    kind.first_guess = duration;
    const bool is_short = duration.count() != 0 && duration + scheduler::kGiveBackOverhead <= registry_.threshold();
    const GatedDispatch dispatch(lane_, stream_, kind, is_short ? HowItEnds::kSoon : HowItEnds::kAtItsEnd);
    if (dispatch.is_cancelled()) return GatedDispatch::kCancelled;
    BeginTiming();
    return CallDriver(lane_, stream_, request_);
  }

  // The program's parameters with room for ours behind them.
  std::vector<std::byte> Parameters(size_t hidden_offset, size_t hidden_bytes) {
    const std::span<const std::byte> own = request_.parameter_block().first(request_.kernel().parameter_bytes);
    std::vector<std::byte> parameters(hidden_offset + hidden_bytes);
    std::copy(own.begin(), own.end(), parameters.begin());
    return parameters;
  }

  CUresult RunGated(const Gate& gate, uint32_t chunk) {
    if (stream_.gated == nullptr) {
      stream_.gated = device_.gated->Open(stream_.real, lane_.session().worker_owner);
      if (stream_.gated == nullptr) return LaunchOriginal(lane_, stream_, request_);
    }
    const GateNeeds needs = NeedsOf(request_.attributes());
    GatedLaunch launch;
    launch.function = gate.function;
    launch.grid = shape_.grid;
    launch.block = shape_.block;
    launch.shared_bytes = shape_.shared_bytes;
    launch.attributes.assign(request_.attributes().begin(), request_.attributes().end());
    launch.cluster_blocks = needs.cluster_blocks;
    launch.parameters = Parameters(gate.hidden_offset, sizeof(device::GateParameters));
    launch.hidden_offset = gate.hidden_offset;
    launch.chunk = chunk;
    // Blocks that are there together may wait for one another in all directions; otherwise only for earlier ones.
    launch.is_whole = gate.waits_for_blocks && shape_.num_blocks() <= NumResident(gate);
    const GatedDispatch dispatch(lane_, stream_,
                                 KindOfKernel(gate.function, shape_.grid, shape_.block, shape_.shared_bytes),
                                 HowItEnds::kWhenAsked);
    if (dispatch.is_cancelled()) return GatedDispatch::kCancelled;
    lane_.session().counters.num_gated.fetch_add(1, std::memory_order_relaxed);
    return stream_.gated->Launch(std::move(launch));
  }

  CUresult RunSlices(const VariantModule::Form& form, const LaunchCandidate& candidate,
                     std::chrono::nanoseconds piece) {
    if (const CUresult r = stream_.Seal(); r != CUDA_SUCCESS) return r;
    std::vector<std::byte> parameters = Parameters(form.hidden_offset, sizeof(device::SliceParameters));
    size_t parameter_bytes = parameters.size();
    void* extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, parameters.data(), CU_LAUNCH_PARAM_BUFFER_SIZE, &parameter_bytes,
                     CU_LAUNCH_PARAM_END};
    const scheduler::GridSlices slices(shape_.grid, candidate.degree);
    // One slice of a timed launch is timed by itself, another one each time.
    const uint64_t num_sliced = lane_.session().counters.num_sliced.fetch_add(1, std::memory_order_relaxed);
    const uint64_t timed = is_sample_ ? num_sliced * 0x9E3779B1 % slices.count() : slices.count();
    for (uint64_t i = 0; i < slices.count(); ++i) {
      const scheduler::GridBox box = slices[i];
      device::SliceParameters hidden{};
      std::copy(box.first.begin(), box.first.end(), hidden.first_block);
      std::copy(shape_.grid.begin(), shape_.grid.end(), hidden.grid);
      std::memcpy(parameters.data() + form.hidden_offset, &hidden, sizeof(hidden));
      LaunchKind kind = KindOfKernel(form.function, box.size, shape_.block, shape_.shared_bytes);
      kind.first_guess = piece;
      const GatedDispatch dispatch(lane_, stream_, kind, HowItEnds::kSoon);
      if (dispatch.is_cancelled()) return GatedDispatch::kCancelled;
      BeginTiming();
      auto slice_timing = i == timed ? device_.timer->Begin(stream_.real) : std::nullopt;
      const CUresult result = lane_.driver().cuLaunchKernel(
          form.function, box.size[0], box.size[1], box.size[2], shape_.block[0], shape_.block[1], shape_.block[2],
          shape_.shared_bytes + form.extra_shared_bytes, stream_.real, nullptr, extra);
      if (result != CUDA_SUCCESS) return result;
      if (slice_timing) {
        slice_timing->End(stream_.real, [profile = kernel_.profile, shape = shape_, candidate](auto duration) {
          profile->OnSlice(shape, candidate, duration);
        });
      }
    }
    return CUDA_SUCCESS;
  }

  CUresult RunWorkers(const VariantModule::Form& form, const LaunchCandidate& candidate) {
    if (const CUresult r = stream_.Seal(); r != CUDA_SUCCESS) return r;
    WorkerLaunch launch;
    launch.function = form.function;
    launch.num_workers = candidate.degree;
    launch.grid = shape_.grid;
    launch.block = shape_.block;
    launch.shared_bytes = shape_.shared_bytes + form.extra_shared_bytes;
    launch.parameters = Parameters(form.hidden_offset, sizeof(device::WorkerParameters));
    launch.hidden_offset = form.hidden_offset;
    launch.owner = lane_.session().worker_owner;
    launch.on_turnaround = [profile = kernel_.profile, shape = shape_, candidate](auto turnaround) {
      profile->OnTurnaround(shape, candidate, turnaround);
    };
    LaunchKind kind = KindOfKernel(form.function, shape_.grid, shape_.block, candidate.degree);
    kind.num_blocks = candidate.degree;
    const GatedDispatch dispatch(lane_, stream_, kind, HowItEnds::kWhenAsked);
    if (dispatch.is_cancelled()) return GatedDispatch::kCancelled;
    BeginTiming();
    lane_.session().counters.num_by_workers.fetch_add(1, std::memory_order_relaxed);
    return device_.workers->Launch(stream_.real, std::move(launch));
  }

  ServedLane& lane_;
  Stream& stream_;
  LaunchParameters& request_;
  VariantRegistry& registry_;
  const VariantDevice& device_;
  KernelOnDevice& kernel_;
  LaunchShape shape_;
  bool is_sample_ = false;
  std::optional<LaunchTimer::Timing> timing_;
};

}  // namespace

CUresult LaunchKernel(ServedLane& lane, Stream& stream, LaunchParameters& request) {
  if (!MayVary(lane, stream, request)) return LaunchOriginal(lane, stream, request);
  if (!request.attributes().empty() && !lane.session().core.variants->may_gate()) {
    return LaunchOriginal(lane, stream, request);
  }
  const int device = stream.context->device();
  const VariantDevice* variant_device = lane.session().core.variants->FindDevice(device);
  if (variant_device == nullptr) return LaunchOriginal(lane, stream, request);
  Kernel& kernel = request.kernel();
  KernelOnDevice& on_device = kernel.on_device[device];
  if (on_device.profile == nullptr) {
    on_device.profile = lane.session().core.variants->Profile(KeyOf(OwnerOf(kernel), variant_device->arch),
                                                              NameOf(lane.driver(), kernel), variant_device->arch);
    if (on_device.profile == nullptr) return LaunchOriginal(lane, stream, request);
    // What an earlier program had compiled; null if nothing.
    on_device.variants =
        lane.session().core.variants->Load(*on_device.profile, variant_device->context, kernel.layout.size());
  }
  return VaryingLaunch(lane, stream, request, *variant_device, on_device).Run();
}

}  // namespace tally::server
