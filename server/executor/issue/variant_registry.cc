#include "server/executor/issue/variant_registry.h"

#include <algorithm>
#include <array>
#include <iterator>

#include "base/log.h"
#include "server/executor/driver/driver_linker.h"
#include "server/executor/issue/gate_canary.h"

namespace tally::server {
namespace {

// Programs that generate kernels without end must not fill our memory: the rest of them run as they are.
constexpr size_t kMaxProfiles = 20'000;

}  // namespace

VariantRegistry::VariantRegistry(const DriverTable& driver, Devices& devices, HighPriorityWatch* watch,
                                 const Clock& clock, VariantConfig config, std::function<void(CUresult)> on_failure)
    : driver_(driver),
      devices_(devices),
      watch_(watch),
      on_failure_(std::move(on_failure)),
      transforms_(config.transforms),
      is_software_(config.is_software),
      forced_form_(config.forced_form),
      gates_rest_after_(config.gates_rest_after),
      clock_(clock),
      threshold_ns_(config.turnaround_threshold.count()),
      gated_images_(
          config.cache_directory, DriverVersion(driver_), [this](auto relocatable) { return LinkCubin(relocatable); },
          [this](GatedImages::Job job) { compiler_->Post(std::move(job)); }),
      compiler_(std::make_unique<VariantCompiler>(driver, std::move(config.cache_directory))) {}

VariantRegistry::~VariantRegistry() { Shutdown(); }

bool VariantRegistry::MightStop(int device) const {
  if (forced_form_) return true;
  if (watch_ == nullptr || !watch_->IsHighPriorityPresent(device)) return false;
  if (gates_rest_after_.count() == 0) return true;
  if (IsDeschedulingExpected(device)) return false;
  if (watch_->IsClosed(device)) return true;
  return clock_.Now() - watch_->OpenSince(device) < gates_rest_after_;
}

uint32_t VariantRegistry::CommonArch() const {
  uint32_t arch = 0;
  for (int i = 0; i < devices_.count(); ++i) {
    const uint32_t its = devices_.Capability(i);
    if (arch != 0 && its != arch) return 0;
    arch = its;
  }
  return arch;
}

Result<std::vector<std::byte>> VariantRegistry::LinkCubin(std::span<const std::byte> relocatable) {
  CUcontext context = nullptr;
  CUresult result = devices_.Context(0, &context);
  if (result == CUDA_SUCCESS) result = driver_.cuCtxSetCurrent(context);
  if (result != CUDA_SUCCESS) return Error(StatusCode::kUnavailable, CudaErrorName(driver_, result));
  return LinkWithDriver(driver_, CU_JIT_INPUT_CUBIN, relocatable, "relocatable");
}

bool VariantRegistry::AreGatesTrusted() {
  const std::lock_guard lock(canary_mutex_);
  if (are_gates_trusted_) return *are_gates_trusted_;
  are_gates_trusted_ = true;
  for (int i = 0; i < devices_.count() && *are_gates_trusted_; ++i) {
    CUcontext context = nullptr;
    if (devices_.Context(i, &context) != CUDA_SUCCESS || driver_.cuCtxSetCurrent(context) != CUDA_SUCCESS) continue;
    const Status status = TestGates(driver_);
    if (status.ok()) continue;
    LOG_WARNING("device {}: machine code gets no gates: {}", i, status.message());
    are_gates_trusted_ = false;
  }
  if (*are_gates_trusted_) LOG_INFO("gates in machine code work on these devices");
  return *are_gates_trusted_;
}

std::shared_ptr<const GatedCode> VariantRegistry::GateImage(const ImageParts& image) {
  if (!has_gates()) return nullptr;
  if (is_software_ && !(forced_form_ && forced_form_->is_in_place)) return nullptr;
  const uint32_t arch = CommonArch();
  if (arch == 0 || (!is_software_ && !AreGatesTrusted())) return nullptr;
  const auto code = gated_images_.Get(image, arch, is_software_);
  if (code) return *code;
  LOG_DEBUG("an image gets no gates: {}", code.error().message());
  return nullptr;
}

const VariantDevice* VariantRegistry::FindDevice(int device) {
  const std::lock_guard lock(mutex_);
  const auto [place, is_new] = open_devices_.try_emplace(device);
  OpenDevice& open = place->second;
  if (!is_new) return open.device.context != nullptr ? &open.device : nullptr;
  CUcontext context = nullptr;
  if (devices_.Context(device, &context) != CUDA_SUCCESS) return nullptr;
  int multiprocessors = 0;
  driver_.cuDeviceGetAttribute(&multiprocessors, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, devices_.device(device));
  CompletionSource& completions = devices_.completions(device);
  open.persistent_blocks = PersistentRuns::Create(driver_, completions, context, device, watch_, on_failure_, clock_);
  if (has_gates()) {
    open.gated = GatedQueues::Create(driver_, completions, context, device, watch_, on_failure_, clock_);
  }
  open.timer = std::make_unique<LaunchTimer>(completions, device, watch_);
  open.device.arch = devices_.Capability(device);
  open.device.num_multiprocessors = static_cast<uint32_t>(multiprocessors);
  open.device.persistent_blocks = open.persistent_blocks.get();
  open.device.gated = open.gated.get();
  open.device.timer = open.timer.get();
  open.device.context = context;
  return &open.device;
}

VariantRegistry::ContextCall::ContextCall(VariantRegistry* registry, bool is_urgent) {
  if (registry == nullptr) return;
  {
    const std::lock_guard lock(registry->mutex_);
    for (const auto& [ordinal, open] : registry->open_devices_) {
      if (open.device.context != nullptr) devices_.push_back(&open.device);
    }
  }
  for (const VariantDevice* device : devices_) {
    if (device->gated != nullptr) device->gated->BeginContextCall(is_urgent);
    if (device->persistent_blocks != nullptr) device->persistent_blocks->BeginContextCall(is_urgent);
  }
}

VariantRegistry::ContextCall::~ContextCall() {
  for (const VariantDevice* device : devices_) {
    if (device->gated != nullptr) device->gated->EndContextCall();
    if (device->persistent_blocks != nullptr) device->persistent_blocks->EndContextCall();
  }
}

FileCache::Key VariantRegistry::SavedUnder(const Key& key) const {
  const std::array<uint32_t, 3> numbers = {kVariantVersion, key.arch, DriverVersion(driver_)};
  static const std::string kWhat = "profile";
  return FileCache::KeyOf({FileCache::BytesOf(kWhat), std::as_bytes(std::span(key.image)),
                           FileCache::BytesOf(key.kernel), std::as_bytes(std::span(numbers))});
}

std::shared_ptr<KernelProfile> VariantRegistry::Profile(const FileCache::Key& image_key, const std::string& kernel,
                                                        uint32_t arch) {
  Key key{{}, kernel, arch};
  std::copy(std::begin(image_key.digest), std::end(image_key.digest), key.image.begin());
  const bool has_ptx = std::any_of(key.image.begin(), key.image.end(), [](uint64_t word) { return word != 0; });
  const std::lock_guard lock(mutex_);
  if (const auto found = profiles_.find(key); found != profiles_.end()) return found->second;
  if (profiles_.size() >= kMaxProfiles) return nullptr;
  auto profile = std::make_shared<KernelProfile>(kernel, image_key, has_ptx ? "" : "its image holds no PTX");
  if (has_ptx) {
    if (const auto saved = compiler_->cache().Find(SavedUnder(key))) {
      profile->Restore({reinterpret_cast<const char*>(saved->bytes.get()), saved->size_bytes});
    }
  }
  profiles_.emplace(std::move(key), profile);
  return profile;
}

void VariantRegistry::Compile(std::shared_ptr<KernelProfile> profile, CompileRequest request) {
  compiler_->Compile(std::move(request), [profile = std::move(profile)](CompiledVariants variants) {
    profile->SetVariants(std::make_shared<const CompiledVariants>(std::move(variants)));
  });
}

std::shared_ptr<VariantModule> VariantRegistry::Load(const KernelProfile& profile, CUcontext context,
                                                     size_t num_parameters) {
  auto variants = profile.variants();
  if (variants == nullptr) return nullptr;
  auto module = std::make_shared<VariantModule>(driver_, context, std::move(variants));
  compiler_->Post([this, module, num_parameters] {
    const ContextCall call(this);
    module->Load(num_parameters);
  });
  return module;
}

std::vector<KernelReport> VariantRegistry::Report() const {
  std::vector<KernelReport> reports;
  {
    const std::lock_guard lock(mutex_);
    for (const auto& [key, profile] : profiles_) {
      auto some = profile->Report(threshold());
      std::move(some.begin(), some.end(), std::back_inserter(reports));
    }
  }
  std::stable_sort(reports.begin(), reports.end(),
                   [](const KernelReport& a, const KernelReport& b) { return a.gpu_time > b.gpu_time; });
  return reports;
}

void VariantRegistry::SaveNews() {
  compiler_->Post([this] { SaveNewsNow(); });
}

void VariantRegistry::SaveNewsNow() {
  std::vector<std::pair<Key, std::shared_ptr<KernelProfile>>> changed;
  {
    const std::lock_guard lock(mutex_);
    for (const auto& [key, profile] : profiles_) {
      if (key.image != decltype(key.image){} && profile->has_news()) changed.emplace_back(key, profile);
    }
  }
  for (const auto& [key, profile] : changed)
    compiler_->cache().Keep(SavedUnder(key), FileCache::BytesOf(profile->Save()));
}

void VariantRegistry::Shutdown() {
  if (compiler_ == nullptr) return;
  SaveNewsNow();
  compiler_.reset();
  for (auto& [device, open] : open_devices_) {
    open.persistent_blocks.reset();
    open.gated.reset();
    open.timer.reset();
  }
  open_devices_.clear();
}

}  // namespace tally::server
