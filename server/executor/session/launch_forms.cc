#include "server/executor/session/launch_forms.h"

#include <chrono>
#include <optional>
#include <string>
#include <thread>

#include "proto/control/coverage.h"
#include "scheduler/tuning.h"
#include "server/executor/session/launch_gates.h"
#include "server/executor/session/launch_runs.h"
#include "server/executor/session/varying_launch.h"

namespace tally::server {
namespace {

using scheduler::LaunchCandidate;
using scheduler::LaunchForm;

// A kernel that could not be timed until then is not waited for any longer.
constexpr uint64_t kLaunchesUntilTimed = 16;

// Why such a launch can have no other form at all; nothing: it may.
std::optional<Coverage> WhyNot(ServedRequest& served, int device, LaunchParameters& request) {
  if (served.session().keeps_kernels) return Coverage::kKernelsKept;
  if ((request.launch().flags & shm::kLaunchCooperative) != 0) return Coverage::kCooperative;
  if (request.parameter_block().size() < request.kernel().parameter_bytes) return Coverage::kNoVariant;
  const VariantRegistry& registry = *served.session().core.variants;
  if (request.attributes().empty()) return std::nullopt;
  if (!registry.MightStop(device)) return Coverage::kNobodyThere;
  return registry.has_gates() ? std::nullopt : std::optional(Coverage::kAttributes);
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

// Which form a launch takes.
class FormChoice {
 public:
  explicit FormChoice(const VaryingLaunch& launch)
      : launch_(launch), registry_(launch.registry), profile_(launch.kernel.profile) {}

  CUresult Run() {
    if (const auto& forced = registry_.forced_form())
      return RunForced(forced->CandidateOn(launch_.device.num_multiprocessors));
    launch_.device.timer->Collect();
    if (registry_.MayGate(launch_.stream.context->device())) {
      if (const std::optional<CUresult> result = TryGated()) return *result;
    }
    // All other forms make a launch of their own, or several.
    if (!launch_.request.attributes().empty()) {
      return LaunchOriginal(launch_.served, launch_.stream, launch_.request, Coverage::kAttributes);
    }
    const KernelProfile::Plan plan = profile_->PlanLaunch(launch_.shape, launch_.threshold());
    if (plan.wants_variants) Compile();
    VariantModule* variants =
        plan.wants_candidates || plan.candidate.form != LaunchForm::kOriginal ? Variants() : nullptr;
    if (plan.wants_candidates && variants != nullptr) SetCandidates(*variants, plan.original_duration);
    return RunPlan(plan, variants);
  }

 private:
  // Nothing: it has no gate, or not yet, or had better be timed first.
  std::optional<CUresult> TryGated() {
    if (launch_.device.gated == nullptr) return std::nullopt;
    const bool is_in_place = launch_.request.kernel().gate.has_value();
    const KernelProfile::GatePlan plan = profile_->PlanGated(launch_.shape);
    if (plan.wants_variants && !is_in_place) Compile();
    const std::optional<GatedFunction> code = FindGate(launch_, is_in_place ? nullptr : Variants());
    if (!code || !FitsGate(launch_, *code)) return std::nullopt;
    const bool is_timed = plan.original_duration > plan.original_duration.zero();
    if (!is_timed && plan.num_launches < kLaunchesUntilTimed && launch_.request.attributes().empty())
      return std::nullopt;
    const uint32_t chunk = ChunkFor(launch_, *code, plan.original_duration);
    const auto piece = PieceOf(launch_, *code, chunk, plan.original_duration);
    const KernelProfile::GateUse use = profile_->UseGate(launch_.shape, chunk, piece, launch_.threshold());
    const CUresult result = use.is_gated ? LaunchGated(launch_, *code, chunk, use.is_sample)
                                         : LaunchUngated(launch_, plan.original_duration, use.is_sample);
    if (result == CUDA_SUCCESS) Count(use.is_gated ? Coverage::kGated : Coverage::kShort, use.duration);
    return result;
  }

  CUresult RunForced(const LaunchCandidate& wanted) {
    if (!launch_.request.attributes().empty() && wanted.form != LaunchForm::kGated)
      return LaunchOriginal(launch_.served, launch_.stream, launch_.request, Coverage::kAttributes);
    const auto wait_until = [](auto condition) {
      while (!condition()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    };
    VariantModule* variants = nullptr;
    const bool is_in_place = wanted.form == LaunchForm::kGated && launch_.request.kernel().gate;
    if (wanted.form != LaunchForm::kOriginal && !is_in_place &&
        HasPtx(PartsOf(*OwnerOf(launch_.request.kernel()).bytes), launch_.device.arch)) {
      if (profile_->variants() == nullptr) Compile();
      wait_until([&] { return profile_->variants() != nullptr; });
      Variants();
      wait_until([&] { return launch_.kernel.variants->is_loaded(); });
      variants = Variants();
    }
    launch_.device.timer->Collect();
    return RunPlan(profile_->PlanForced(launch_.shape, Usable(wanted, variants)), variants);
  }

  void Compile() {
    const LoadedImage& image = OwnerOf(launch_.request.kernel());
    registry_.Compile(profile_, {.keep = image.bytes,
                                 .image = PartsOf(*image.bytes),
                                 .image_key = profile_->image(),
                                 .kernel = profile_->kernel(),
                                 .arch = launch_.device.arch,
                                 .context = launch_.device.context});
  }

  // Null: not there yet.
  VariantModule* Variants() {
    const Kernel& kernel = launch_.request.kernel();
    std::shared_ptr<VariantModule>& variants = launch_.kernel.variants;
    if (variants == nullptr) variants = registry_.Load(*profile_, launch_.device.context, kernel.layout.size());
    if (variants == nullptr || !variants->is_loaded()) return nullptr;
    if (!variants->is_bound()) variants->Bind([&](const std::string& name) { return AddressOf(*kernel.image, name); });
    return variants.get();
  }

  CUdeviceptr AddressOf(const LoadedImage& image, const std::string& name) const {
    const DriverTable& driver = launch_.served.driver();
    CUdeviceptr address = 0;
    size_t size_bytes = 0;
    const CUresult result = image.is_library
                                ? driver.cuLibraryGetGlobal(&address, &size_bytes, image.library, name.c_str())
                                : driver.cuModuleGetGlobal_v2(&address, &size_bytes, image.module, name.c_str());
    return result == CUDA_SUCCESS ? address : 0;
  }

  void SetCandidates(VariantModule& variants, std::chrono::nanoseconds original_duration) {
    scheduler::LaunchSize size;
    size.num_blocks = launch_.shape.num_blocks();
    size.num_multiprocessors = launch_.device.num_multiprocessors;
    size.can_slice = CanSlice(variants);
    size.max_blocks_per_multiprocessor = 0;
    if (CanYield(variants)) {
      int resident = 0;
      launch_.served.driver().cuOccupancyMaxActiveBlocksPerMultiprocessor(
          &resident, variants.workers().function, launch_.num_threads(),
          launch_.shape.shared_bytes + variants.workers().extra_shared_bytes);
      size.max_blocks_per_multiprocessor = static_cast<uint32_t>(resident);
    }
    const std::chrono::nanoseconds threshold = launch_.threshold();
    profile_->SetCandidates(launch_.shape, CandidatesFor(size, original_duration, threshold), threshold);
  }

  bool CanSlice(VariantModule& variants) const {
    return registry_.may_slice() && variants.Prepare(variants.slices(), launch_.shape);
  }

  bool CanYield(VariantModule& variants) const {
    return registry_.may_yield() && launch_.device.workers != nullptr &&
           WorkerRuns::Fits(launch_.shape.num_blocks(), UINT16_MAX) &&
           variants.Prepare(variants.workers(), launch_.shape);
  }

  // What the profile wants, or the original where this session has no code for it (yet).
  LaunchCandidate Usable(const LaunchCandidate& wanted, VariantModule* variants) const {
    if (wanted.form == LaunchForm::kGated) {
      const std::optional<GatedFunction> code = FindGate(launch_, variants);
      return code && FitsGate(launch_, *code) ? wanted : LaunchCandidate{};
    }
    if (variants == nullptr) return {};
    if (wanted.form == LaunchForm::kWorkers && CanYield(*variants)) return wanted;
    if (wanted.form == LaunchForm::kSlices && CanSlice(*variants)) return wanted;
    return {};
  }

  CUresult RunPlan(const KernelProfile::Plan& plan, VariantModule* variants) const {
    const LaunchCandidate candidate = Usable(plan.candidate, variants);
    const bool is_as_planned = candidate == plan.candidate;
    LaunchRun run(launch_, plan.is_sample && is_as_planned, is_as_planned ? plan.piece : std::chrono::nanoseconds(0));
    const CUresult result = run.Run(candidate, variants);
    if (result == CUDA_SUCCESS)
      Count(CoverageOf(candidate, plan), is_as_planned ? plan.duration : plan.original_duration);
    return result;
  }

  Coverage CoverageOf(const LaunchCandidate& candidate, const KernelProfile::Plan& plan) const {
    switch (candidate.form) {
      case LaunchForm::kSlices:
        return Coverage::kSlices;
      case LaunchForm::kWorkers:
        return Coverage::kWorkers;
      case LaunchForm::kGated:
        return Coverage::kGated;
      case LaunchForm::kOriginal:
        break;
    }
    if (candidate == plan.candidate && scheduler::IsShort(plan.piece, launch_.threshold())) return Coverage::kShort;
    const int device = launch_.stream.context->device();
    const Coverage why = plan.is_settled ? Coverage::kNoVariant : Coverage::kNotTriedYet;
    return registry_.CoverageLeft(device, registry_.MightStop(device) ? why : Coverage::kNobodyThere);
  }

  void Count(Coverage coverage, std::chrono::nanoseconds duration) const {
    launch_.served.session().coverage.Count(KindOfOriginal(launch_.request).key, coverage, duration);
  }

  const VaryingLaunch& launch_;
  VariantRegistry& registry_;
  const std::shared_ptr<KernelProfile>& profile_;
};

// The driver loads code when it is first used, for which it may wait for the context: not in a launch, then.
CUresult LoadCode(ServedRequest& served, const Kernel& kernel, KernelOnDevice& on_device) {
  const DriverTable& driver = served.driver();
  on_device.is_loaded = true;
  if (driver.cuFuncLoad == nullptr) return CUDA_SUCCESS;
  const VariantRegistry::ContextCall call(served.session().core.variants.get());
  CUfunction function = kernel.function;
  if (function == nullptr) {
    if (const CUresult r = driver.cuKernelGetFunction(&function, kernel.kernel); r != CUDA_SUCCESS) return r;
  }
  return driver.cuFuncLoad(function);
}

}  // namespace

bool IsOfInterest(ServedRequest& served, const Stream& stream) {
  const SessionState& session = served.session();
  return session.core.variants != nullptr && !session.is_high_priority.load(std::memory_order_relaxed) &&
         !stream.context->IsCapturing(stream);
}

CUresult LaunchKernel(ServedRequest& served, Stream& stream, LaunchParameters& request) {
  if (!IsOfInterest(served, stream)) return LaunchOriginal(served, stream, request);
  if (KernelOnDevice& here = request.kernel().on_device[stream.context->device()]; !here.is_loaded) {
    if (const CUresult r = LoadCode(served, request.kernel(), here); r != CUDA_SUCCESS) return r;
  }
  const int device = stream.context->device();
  if (const auto why = WhyNot(served, device, request)) return LaunchOriginal(served, stream, request, *why);
  const VariantDevice* variant_device = served.session().core.variants->FindDevice(device);
  if (variant_device == nullptr) return LaunchOriginal(served, stream, request, Coverage::kNoVariant);
  Kernel& kernel = request.kernel();
  KernelOnDevice& on_device = kernel.on_device[device];
  if (on_device.profile == nullptr) {
    on_device.profile = served.session().core.variants->Profile(KeyOf(OwnerOf(kernel), variant_device->arch),
                                                                NameOf(served.driver(), kernel), variant_device->arch);
    if (on_device.profile == nullptr) return LaunchOriginal(served, stream, request, Coverage::kNoVariant);
    if (!kernel.gate_refusal.empty()) on_device.profile->SetGateRefusal(kernel.gate_refusal);
    // What an earlier program had compiled; null if nothing.
    on_device.variants =
        served.session().core.variants->Load(*on_device.profile, variant_device->context, kernel.layout.size());
  }
  const VaryingLaunch launch(served, stream, request, *variant_device, on_device);
  return FormChoice(launch).Run();
}

}  // namespace tally::server
