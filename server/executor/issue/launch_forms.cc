#include "server/executor/issue/launch_forms.h"

#include <chrono>
#include <optional>
#include <string>
#include <thread>

#include "proto/control/preemptibility.h"
#include "proto/device/any_grid.h"
#include "scheduler/tuning.h"
#include "server/executor/driver/driver_table.h"
#include "server/executor/issue/kernel_code.h"
#include "server/executor/issue/launch_gates.h"
#include "server/executor/issue/launch_runs.h"
#include "server/executor/issue/launch_stream.h"
#include "server/executor/issue/preemptibility_meter.h"
#include "server/executor/issue/variant_registry.h"

namespace tally::server {
namespace {

using scheduler::LaunchCandidate;
using scheduler::LaunchForm;

// A kernel that could not be timed until then is not waited for any longer.
constexpr uint64_t kLaunchesUntilTimed = 16;

// Why such a launch can have no other form at all; nothing: it may.
std::optional<Preemptibility> WhyNot(const PendingLaunch& launch) {
  if (launch.owner->keeps_kernels) return Preemptibility::kKernelsKept;
  if ((launch.flags & shm::kLaunchCooperative) != 0) return Preemptibility::kCooperative;
  if (launch.parameter_bytes < launch.kernel->parameter_bytes) return Preemptibility::kNoVariant;
  const VariantRegistry& registry = *launch.owner->variants;
  if (launch.attributes.empty()) return std::nullopt;
  if (!registry.MightStop(launch.stream->device)) return Preemptibility::kNobodyThere;
  return registry.has_gates() ? std::nullopt : std::optional(Preemptibility::kAttributes);
}

FileCache::Key KeyOf(const LoadedImage& image, uint32_t arch) {
  if (!HasPtx(PartsOf(*image.bytes), arch)) return {};
  if (!image.bytes->key) image.bytes->key = FileCache::KeyOf({image.bytes->bytes});
  return *image.bytes->key;
}

// Which form a launch takes.
class FormChoice {
 public:
  explicit FormChoice(PendingLaunch& launch)
      : launch_(launch),
        registry_(*launch.owner->variants),
        here_(*launch.here),
        device_(*launch.here->device),
        profile_(here_.profile),
        original_kind_(AskedOfOriginal(launch).kind),
        threshold_(registry_.ThresholdOf(launch.turnaround)) {}

  CUresult Run() {
    if (const auto& forced = registry_.forced_form())
      return RunForced(forced->CandidateOn(device_.num_multiprocessors));
    device_.timer->Collect();
    if (registry_.MayGate(launch_.stream->device)) {
      if (const std::optional<CUresult> result = TryGated()) return *result;
    }
    // All other forms make a launch of their own, or several.
    if (!launch_.attributes.empty()) {
      return LaunchOriginal(launch_, Preemptibility::kAttributes);
    }
    const KernelProfile::Plan plan = profile_->PlanLaunch(launch_.shape, threshold_);
    if (plan.wants_variants) Compile();
    VariantModule* variants =
        plan.wants_candidates || plan.candidate.form != LaunchForm::kOriginal ? Variants() : nullptr;
    if (plan.wants_candidates && variants != nullptr) SetCandidates(*variants, plan.original_duration);
    return RunPlan(plan, variants);
  }

 private:
  // Nothing: it has no gate, or not yet, or had better be timed first.
  std::optional<CUresult> TryGated() {
    if (device_.gated == nullptr) return std::nullopt;
    const bool is_in_place = launch_.kernel->gate.has_value();
    const KernelProfile::GatePlan plan = profile_->PlanGated(launch_.shape);
    if (plan.wants_variants && !is_in_place) Compile();
    const std::optional<GatedFunction> code =
        FindGate(launch_, is_in_place ? nullptr : Variants(), plan.original_duration);
    if (!code || !FitsGate(launch_, *code)) return std::nullopt;
    const bool is_timed = plan.original_duration > plan.original_duration.zero();
    if (!is_timed && plan.num_launches < kLaunchesUntilTimed && launch_.attributes.empty()) return std::nullopt;
    const uint32_t chunk = ChunkFor(launch_, *code, plan.original_duration);
    const auto piece = PieceOf(launch_, *code, chunk, plan.original_duration);
    const KernelProfile::GateUse use = profile_->UseGate(launch_.shape, chunk, piece, threshold_);
    const CUresult result = use.is_gated ? LaunchGated(launch_, *code, chunk, use.is_sample)
                                         : LaunchUngated(launch_, plan.original_duration, use.is_sample);
    if (result == CUDA_SUCCESS) Count(use.is_gated ? Preemptibility::kGated : Preemptibility::kShort, use.duration);
    return result;
  }

  CUresult RunForced(const LaunchCandidate& wanted) {
    if (!launch_.attributes.empty() && wanted.form != LaunchForm::kGated)
      return LaunchOriginal(launch_, Preemptibility::kAttributes);
    const auto wait_until = [](auto condition) {
      while (!condition()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    };
    VariantModule* variants = nullptr;
    const bool is_in_place = wanted.form == LaunchForm::kGated && launch_.kernel->gate;
    if (wanted.form != LaunchForm::kOriginal && !is_in_place &&
        HasPtx(PartsOf(*OwnerOf((*launch_.kernel)).bytes), device_.arch)) {
      if (profile_->variants() == nullptr) Compile();
      wait_until([&] { return profile_->variants() != nullptr; });
      Variants();
      wait_until([&] { return here_.variants->is_loaded(); });
      variants = Variants();
    }
    device_.timer->Collect();
    return RunPlan(profile_->PlanForced(launch_.shape, Usable(wanted, variants)), variants);
  }

  void Compile() {
    const LoadedImage& image = OwnerOf((*launch_.kernel));
    registry_.Compile(profile_, {.keep = image.bytes,
                                 .image = PartsOf(*image.bytes),
                                 .image_key = profile_->image(),
                                 .kernel = profile_->kernel(),
                                 .arch = device_.arch,
                                 .context = device_.context});
  }

  // Null: not there yet.
  VariantModule* Variants() {
    const Kernel& kernel = (*launch_.kernel);
    std::shared_ptr<VariantModule>& variants = here_.variants;
    if (variants == nullptr) variants = registry_.Load(*profile_, device_.context, kernel.layout.size());
    if (variants == nullptr || !variants->is_loaded()) return nullptr;
    if (!variants->is_bound())
      variants->Bind(
          [&](const std::string& name) { return VariableOf(launch_.owner->driver, *kernel.image, name).address; });
    return variants.get();
  }

  void SetCandidates(VariantModule& variants, std::chrono::nanoseconds original_duration) {
    scheduler::LaunchSize size;
    size.num_blocks = launch_.shape.num_blocks();
    size.num_multiprocessors = device_.num_multiprocessors;
    size.can_slice = CanSlice(variants);
    size.max_blocks_per_multiprocessor = 0;
    if (CanYield(variants)) {
      int resident = 0;
      launch_.owner->driver.cuOccupancyMaxActiveBlocksPerMultiprocessor(
          &resident, variants.persistent_blocks().function, launch_.num_threads(),
          launch_.shape.shared_bytes + variants.persistent_blocks().extra_shared_bytes);
      size.max_blocks_per_multiprocessor = static_cast<uint32_t>(resident);
    }
    profile_->SetCandidates(launch_.shape, CandidatesFor(size, original_duration, threshold_), threshold_);
  }

  bool CanSlice(VariantModule& variants) const {
    return registry_.may_slice() && variants.Prepare(variants.slices(), launch_.shape);
  }

  bool CanYield(VariantModule& variants) const {
    return registry_.may_yield() && device_.persistent_blocks != nullptr &&
           PersistentRuns::Fits(launch_.shape.num_blocks(), UINT16_MAX) &&
           variants.Prepare(variants.persistent_blocks(), launch_.shape);
  }

  // What the profile wants, or the original where this session has no code for it (yet).
  LaunchCandidate Usable(const LaunchCandidate& wanted, VariantModule* variants) const {
    if (wanted.form == LaunchForm::kGated) {
      const std::optional<GatedFunction> code = FindGate(launch_, variants, std::chrono::nanoseconds(0));
      return code && FitsGate(launch_, *code) ? wanted : LaunchCandidate{};
    }
    if (variants == nullptr) return {};
    if (wanted.form == LaunchForm::kPersistentBlocks && CanYield(*variants)) return wanted;
    if (wanted.form == LaunchForm::kSlices && CanSlice(*variants)) return wanted;
    return {};
  }

  CUresult RunPlan(const KernelProfile::Plan& plan, VariantModule* variants) const {
    const LaunchCandidate candidate = Usable(plan.candidate, variants);
    const bool is_as_planned = candidate == plan.candidate;
    LaunchRun run(launch_, plan.is_sample && is_as_planned, is_as_planned ? plan.piece : std::chrono::nanoseconds(0));
    const CUresult result = run.Run(candidate, variants);
    if (result == CUDA_SUCCESS)
      Count(PreemptibilityOf(candidate, plan), is_as_planned ? plan.duration : plan.original_duration);
    return result;
  }

  Preemptibility PreemptibilityOf(const LaunchCandidate& candidate, const KernelProfile::Plan& plan) const {
    switch (candidate.form) {
      case LaunchForm::kSlices:
        return Preemptibility::kSlices;
      case LaunchForm::kPersistentBlocks:
        return Preemptibility::kPersistentBlocks;
      case LaunchForm::kGated:
        return Preemptibility::kGated;
      case LaunchForm::kOriginal:
        break;
    }
    if (candidate == plan.candidate && scheduler::IsShort(plan.piece, threshold_)) return Preemptibility::kShort;
    const int device = launch_.stream->device;
    const Preemptibility why = plan.is_settled ? Preemptibility::kNoVariant : Preemptibility::kNotTriedYet;
    return registry_.PreemptibilityLeft(device, registry_.MightStop(device) ? why : Preemptibility::kNobodyThere);
  }

  void Count(Preemptibility preemptibility, std::chrono::nanoseconds duration) const {
    launch_.owner->preemptibility.Count(original_kind_, preemptibility, duration);
  }

  PendingLaunch& launch_;
  VariantRegistry& registry_;
  KernelOnDevice& here_;
  const VariantDevice& device_;
  const std::shared_ptr<KernelProfile>& profile_;
  const uint64_t original_kind_;  // known also once a queue has taken the launch
  const std::chrono::nanoseconds threshold_;
};

// The driver loads code when it is first used, for which it may wait for the context: not in a launch, then.
CUresult LoadCode(const LaunchOwner& owner, const Kernel& kernel, KernelOnDevice& here) {
  const DriverTable& driver = owner.driver;
  here.is_loaded = true;
  if (driver.cuFuncLoad == nullptr) return CUDA_SUCCESS;
  const VariantRegistry::ContextCall call(owner.variants);
  CUfunction function = kernel.function;
  if (function == nullptr) {
    if (const CUresult r = driver.cuKernelGetFunction(&function, kernel.kernel); r != CUDA_SUCCESS) return r;
  }
  return driver.cuFuncLoad(function);
}

// What is known of the kernel on the stream's device. False: it cannot have another form.
bool FindProfile(PendingLaunch& launch) {
  VariantRegistry& registry = *launch.owner->variants;
  Kernel& kernel = *launch.kernel;
  KernelOnDevice& here = *launch.here;
  if (here.device == nullptr) here.device = registry.FindDevice(launch.stream->device);
  if (here.device == nullptr) return false;
  if (here.profile != nullptr) return true;
  const std::string name = NameOf(launch.owner->driver, kernel);
  here.profile = registry.Profile(KeyOf(OwnerOf(kernel), here.device->arch), name, here.device->arch);
  if (here.profile == nullptr) return false;
  here.takes_any_grid = name.contains(device::kAnyGrid);
  if (!kernel.gate_refusal.empty()) here.profile->SetGateRefusal(kernel.gate_refusal);
  // What an earlier program had compiled; null if nothing.
  here.variants = registry.Load(*here.profile, here.device->context, kernel.layout.size());
  return true;
}

}  // namespace

bool IsOfInterest(const LaunchOwner& owner, bool is_captured) {
  return owner.variants != nullptr && !owner.is_high_priority.load(std::memory_order_relaxed) && !is_captured;
}

CUresult IssueLaunch(PendingLaunch& launch) {
  if (!IsOfInterest(*launch.owner, launch.is_captured)) return LaunchOriginal(launch);
  launch.here = &launch.kernel->on_device[launch.stream->device];
  if (!launch.here->is_loaded) {
    if (const CUresult r = LoadCode(*launch.owner, *launch.kernel, *launch.here); r != CUDA_SUCCESS) return r;
  }
  if (const auto why = WhyNot(launch)) return LaunchOriginal(launch, *why);
  if (!FindProfile(launch)) return LaunchOriginal(launch, Preemptibility::kNoVariant);
  return FormChoice(launch).Run();
}

}  // namespace tally::server
