// Everything the executor knows and owns about variants of best-effort kernels: the front desk of this folder.
//
// Thread-safe. Built before the first session, shut down after the last one and before the contexts go.
#pragma once

#include <cuda.h>

#include <array>
#include <atomic>
#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "proto/control/executor_choices.h"
#include "proto/control/preemptibility.h"
#include "proto/shm/activity_abi.h"
#include "server/executor/dispatch/high_priority_watch.h"
#include "server/executor/dispatch/launch_timer.h"
#include "server/executor/driver/devices.h"
#include "server/executor/issue/forced_form.h"
#include "server/executor/issue/gated_images.h"
#include "server/executor/issue/gated_queues.h"
#include "server/executor/issue/kernel_profile.h"
#include "server/executor/issue/persistent_runs.h"
#include "server/executor/issue/variant_compiler.h"
#include "server/executor/issue/variant_module.h"

namespace tally::server {

using control::Preemptibility;

struct VariantConfig {
  control::Transforms transforms = control::Transforms::kAll;
  bool is_software = false;     // the driver is: it takes PTX
  std::string cache_directory;  // empty: nothing is kept
  // Within which a best-effort kernel should give the GPU back. The paper's default.
  std::chrono::nanoseconds turnaround_threshold{31'600};
  // Nothing is made ready to be stopped once no high-priority work has come for so long, or where contexts are
  // descheduled instead; zero: it always is.
  std::chrono::nanoseconds gates_rest_after{std::chrono::seconds(1)};
  std::optional<ForcedForm> forced_form;  // instead of the choice
};

// What is the same for all launches on one device.
struct VariantDevice {
  uint32_t arch = 0;  // 90: sm_90
  uint32_t num_multiprocessors = 0;
  CUcontext context = nullptr;
  PersistentRuns* persistent_blocks = nullptr;  // null: kernels there cannot be asked to yield
  GatedQueues* gated = nullptr;                 // null: launches there cannot be gated
  LaunchTimer* timer = nullptr;
};

class VariantRegistry {
 public:
  // `watch` may be null: nobody has priority. `on_failure`: a launch can never be completed; the context is of no use
  // any more. All outlive this.
  VariantRegistry(const DriverTable& driver, Devices& devices, HighPriorityWatch* watch, const Clock& clock,
                  VariantConfig config, std::function<void(CUresult)> on_failure);
  ~VariantRegistry();

  bool may_slice() const {
    return transforms_ == control::Transforms::kAll || transforms_ == control::Transforms::kSlices;
  }
  bool may_yield() const {
    return transforms_ == control::Transforms::kAll || transforms_ == control::Transforms::kPersistentBlocks;
  }
  // Whether a launch there might be stopped: high-priority work runs, or came so recently that more may come. A gate
  // costs its kernel a few per cent, which is wasted while nobody comes; the first who comes again finds what was
  // launched without, no more than its policy lets onto the GPU ahead. Wasted it is, too, where the whole context is
  // descheduled: that stops anything, and what both stop is made again for nothing
  // (docs/decisions/008-descheduling-contexts.md).
  bool MightStop(int device) const;
  // Whether anything gets a gate at all.
  bool has_gates() const {
    return transforms_ == control::Transforms::kAll || transforms_ == control::Transforms::kGate;
  }
  // Whether a launch there goes through its gate.
  bool MayGate(int device) const { return has_gates() && MightStop(device); }
  // Of a launch that is left to the time slices, for the reason given: where contexts are descheduled, that takes the
  // GPU from it.
  Preemptibility PreemptibilityLeft(int device, Preemptibility why) const {
    return IsDeschedulingExpected(device) ? Preemptibility::kDescheduling : why;
  }
  // As Executor::ExpectDescheduling.
  void ExpectDescheduling(int device, bool is_expected) {
    is_descheduling_expected_[static_cast<size_t>(device)].store(is_expected, std::memory_order_relaxed);
  }
  const std::optional<ForcedForm>& forced_form() const { return forced_form_; }
  std::chrono::nanoseconds threshold() const {
    return std::chrono::nanoseconds(threshold_ns_.load(std::memory_order_relaxed));
  }
  // Of a program; zero: it has none of its own.
  std::chrono::nanoseconds ThresholdOf(std::chrono::nanoseconds own) const {
    return own.count() != 0 ? own : threshold();
  }
  void SetThreshold(std::chrono::nanoseconds threshold) { threshold_ns_ = threshold.count(); }

  // A call of the driver that may wait for a whole context, for as long as this is there: nothing is stopped half-way
  // then. Making one waits until nothing is, which is as soon as high-priority work lets it go on; `is_urgent`: at
  // once. `registry` may be null.
  class ContextCall {
   public:
    explicit ContextCall(VariantRegistry* registry, bool is_urgent = false);
    ~ContextCall();
    ContextCall(const ContextCall&) = delete;
    ContextCall& operator=(const ContextCall&) = delete;

   private:
    std::vector<const VariantDevice*> devices_;
  };

  // The image with gates in its kernels, to be loaded in its place; null: load it as it is. May make the context of
  // some device current.
  std::shared_ptr<const GatedCode> GateImage(const ImageParts& image);
  // Opens what it needs there on first use; null if that fails. Its context must be current. Stays valid.
  const VariantDevice* FindDevice(int device);
  // The profile of that kernel on devices of that architecture, with what an earlier life knew. `image_key` all zero:
  // the image has no PTX.
  std::shared_ptr<KernelProfile> Profile(const FileCache::Key& image_key, const std::string& kernel, uint32_t arch);
  // In the background; the profile has them when it is done.
  void Compile(std::shared_ptr<KernelProfile> profile, CompileRequest request);
  // Loads the profile's variants in the background; null if there are none yet.
  std::shared_ptr<VariantModule> Load(const KernelProfile& profile, CUcontext context, size_t num_parameters);

  // By GPU time, the most first.
  std::vector<KernelReport> Report() const;
  // Keeps what was learned since the last time.
  void SaveNews();
  // Nothing is in flight any more and no session exists.
  void Shutdown();

 private:
  struct Key {
    std::array<uint64_t, 4> image{};
    std::string kernel;
    uint32_t arch = 0;
    auto operator<=>(const Key&) const = default;
  };
  struct OpenDevice {
    VariantDevice device;
    std::unique_ptr<PersistentRuns> persistent_blocks;
    std::unique_ptr<GatedQueues> gated;
    std::unique_ptr<LaunchTimer> timer;
  };
  bool IsDeschedulingExpected(int device) const {
    return is_descheduling_expected_[static_cast<size_t>(device)].load(std::memory_order_relaxed);
  }
  // Of all devices; 0: they differ.
  uint32_t CommonArch() const;
  // Asks once whether gates in machine code work here.
  bool AreGatesTrusted();
  // For CommonArch; makes the context of a device current.
  Result<std::vector<std::byte>> LinkCubin(std::span<const std::byte> relocatable);
  FileCache::Key SavedUnder(const Key& key) const;
  void SaveNewsNow();

  const DriverTable& driver_;
  Devices& devices_;
  HighPriorityWatch* const watch_;
  const std::function<void(CUresult)> on_failure_;
  const control::Transforms transforms_;
  const bool is_software_;
  const std::optional<ForcedForm> forced_form_;
  const std::chrono::nanoseconds gates_rest_after_;
  const Clock& clock_;
  std::atomic<int64_t> threshold_ns_;
  std::array<std::atomic<bool>, shm::kActivityDevices> is_descheduling_expected_{};
  GatedImages gated_images_;
  std::mutex canary_mutex_;
  std::optional<bool> are_gates_trusted_;  // guarded by canary_mutex_
  mutable std::mutex mutex_;
  std::map<int, OpenDevice> open_devices_;                  // guarded by mutex_; entries stay
  std::map<Key, std::shared_ptr<KernelProfile>> profiles_;  // guarded by mutex_
  std::unique_ptr<VariantCompiler> compiler_;               // last: its thread uses the above
};

}  // namespace tally::server
