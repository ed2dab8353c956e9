#include "server/executor/executor_parts.h"

#include <optional>
#include <utility>

#include "base/clock.h"
#include "base/log.h"
#include "scheduler/policy_list.h"
#include "server/executor/dispatch/policy_dispatch.h"
#include "server/executor/executor_config.h"
#include "server/executor/issue/forced_form.h"

namespace tally::server {
namespace {

const SteadyClock steady_clock;  // outlives every executor

std::unique_ptr<HeldAddresses> HoldAddresses() {
  auto held_addresses = std::make_unique<HeldAddresses>();
  held_addresses->Hold();
  return held_addresses;
}

Result<std::unique_ptr<DeviceOutput>> CreateDeviceOutput(const ExecutorConfig& config) {
  if (!config.capture_stdout) return std::make_unique<DeviceOutput>(nullptr);
  auto capture = PrintfCapture::Create();
  if (!capture) return std::unexpected(capture.error());
  return std::make_unique<DeviceOutput>(std::move(*capture));
}

Result<std::unique_ptr<LoadedDriver>> OpenDriver(const ExecutorConfig& config) {
  auto loaded = std::make_unique<LoadedDriver>();
  if (config.driver_table_for_testing != nullptr) {
    loaded->table = *config.driver_table_for_testing;
    loaded->description = "injected driver";
    loaded->is_software = true;
    return loaded;
  }
  auto driver = LoadDriver(config.driver);
  if (!driver) return std::unexpected(driver.error());
  *loaded = std::move(*driver);
  return loaded;
}

Result<std::unique_ptr<Admission>> CreateAdmission(const ExecutorConfig& config, const DriverTable& driver,
                                                   Devices& devices) {
  if (config.activity_path.empty()) return std::make_unique<Admission>();
  // Nobody waits for anybody, so nobody need be told.
  if (config.policy == "none") return std::make_unique<Admission>();
  auto page = ActivityPage::Open(config.activity_path);
  if (!page) return std::unexpected(page.error());
  const bool is_auto = config.policy == scheduler::kAutoPolicy;  // until LeaveToTimeSlices
  const auto policy = scheduler::FindPolicy(is_auto ? scheduler::kLookAheadPolicy : config.policy);
  if (!policy) return std::unexpected(policy.error());
  auto admission = CreatePolicyDispatch(driver, devices, std::move(*page), **policy, config.starvation_bound,
                                        steady_clock, config.may_hold);
  admission->Tune({.turnaround_threshold = config.turnaround_threshold});
  return admission;
}

// Policies that know no yielding run kernels as they are.
control::Transforms UsableTransforms(const ExecutorConfig& config) {
  const auto policy = scheduler::FindPolicy(config.policy);
  if (!policy || (*policy)->uses_variants || config.transforms == control::Transforms::kNone) return config.transforms;
  LOG_WARNING("policy '{}' runs kernels as they are: transforms are off", config.policy);
  return control::Transforms::kNone;
}

// Null: every kernel runs as it is.
std::unique_ptr<VariantRegistry> CreateVariants(const ExecutorConfig& config, const ExecutorParts& parts) {
  const std::optional<ForcedForm> forced_form = ForcedForm::OfEnvironment();
  const control::Transforms transforms = forced_form ? control::Transforms::kAll : UsableTransforms(config);
  if (transforms == control::Transforms::kNone) return nullptr;
  return std::make_unique<VariantRegistry>(parts.driver->table, *parts.devices, parts.admission->watch(), steady_clock,
                                           VariantConfig{.transforms = transforms,
                                                         .is_software = parts.driver->is_software,
                                                         .cache_directory = config.cache_directory,
                                                         .turnaround_threshold = config.turnaround_threshold,
                                                         .gates_rest_after = config.gates_rest_after,
                                                         .forced_form = forced_form},
                                           [context_fault = parts.context_fault.get()](CUresult result) {
                                             context_fault->Report(result,
                                                                   "a kernel that had yielded could not be continued");
                                           });
}

}  // namespace

Result<ExecutorParts> MakeExecutorParts(const ExecutorConfig& config) {
  ExecutorParts parts;
  parts.held_addresses = HoldAddresses();  // before the driver picks addresses
  auto device_output = CreateDeviceOutput(config);
  if (!device_output) return std::unexpected(device_output.error());
  parts.device_output = std::move(*device_output);
  auto driver = OpenDriver(config);
  if (!driver) return std::unexpected(driver.error());
  parts.driver = std::move(*driver);
  auto devices = Devices::Create(parts.driver->table, config.on_making_context);
  if (!devices) return std::unexpected(devices.error());
  parts.devices = std::move(*devices);
  auto admission = CreateAdmission(config, parts.driver->table, *parts.devices);
  if (!admission) return std::unexpected(admission.error());
  parts.admission = std::move(*admission);
  parts.context_fault = std::make_unique<ContextFault>();
  parts.variants = CreateVariants(config, parts);
  return parts;
}

}  // namespace tally::server
