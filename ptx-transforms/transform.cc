#include "ptx-transforms/transform.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <set>

#include "proto/device/gate_abi.h"
#include "proto/device/variant_abi.h"
#include "ptx-transforms/passes/assemble.h"
#include "ptx-transforms/passes/own_callees.h"
#include "ptx-transforms/passes/pass_list.h"
#include "ptx-transforms/passes/verifier.h"
#include "ptx-transforms/syntax/printer.h"

namespace tally::ptx_transforms {
namespace {

using Pipeline = std::vector<const PassEntry*>;

Result<const PassEntry*> PassNamed(const std::string& name) {
  const PassEntry* entry = FindPass(name);
  if (entry == nullptr) return Error(StatusCode::kInvalidArgument, fmt::format("there is no pass '{}'", name));
  return entry;
}

// The named passes and those they need, in the order of the table.
Result<Pipeline> MakePipeline(const std::vector<std::string>& names, const std::vector<std::string>& disabled_names) {
  std::set<const PassEntry*> disabled;
  for (const std::string& name : disabled_names) {
    const Result<const PassEntry*> entry = PassNamed(name);
    if (!entry) return std::unexpected(entry.error());
    disabled.insert(*entry);
  }
  std::set<const PassEntry*> wanted;
  for (const std::string& name : names) {
    const Result<const PassEntry*> entry = PassNamed(name);
    if (!entry) return std::unexpected(entry.error());
    if (disabled.contains(*entry)) continue;
    wanted.insert(*entry);
    for (const std::string_view other : (*entry)->after) {
      if (disabled.contains(FindPass(other)))
        return Error(StatusCode::kInvalidArgument, fmt::format("{} needs {}, which is disabled", name, other));
      wanted.insert(FindPass(other));
    }
  }
  Pipeline pipeline;
  for (const PassEntry& entry : AllPasses())
    if (wanted.contains(&entry)) pipeline.push_back(&entry);
  if (pipeline.empty()) return Error(StatusCode::kInvalidArgument, "no pass is named, or all are disabled");
  return pipeline;
}

// Runs pipelines over the kernels of one module.
class Transformation {
 public:
  Transformation(Module& module, const TransformOptions& options)
      : module_(module), options_(options), prefix_(FreshPrefix(module.source())) {}

  void Run(const Function& kernel, const Pipeline& pipeline);
  Transformed Finish();

 private:
  std::optional<Refusal> RunPass(Variant& variant, const PassEntry& entry);
  std::optional<Refusal> RunPasses(Variant& variant, const Pipeline& pipeline, KernelVariant& outcome);
  std::string NameOf(const Function& kernel, const Pipeline& pipeline) const;

  Module& module_;
  const TransformOptions& options_;
  const std::string prefix_;
  ImportTable imports_;
  Transformed result_;
  std::vector<Variant> done_;
};

std::string Transformation::NameOf(const Function& kernel, const Pipeline& pipeline) const {
  std::string_view suffix;
  if (options_.placement != Placement::kReplace)
    for (const PassEntry* entry : pipeline)
      if (suffix.empty() || entry->name != "import_globals") suffix = entry->suffix;
  return std::string(kernel.name) + std::string(suffix);
}

std::optional<Refusal> Transformation::RunPass(Variant& variant, const PassEntry& entry) {
  const std::string_view kernel = variant.original.name;
  if (options_.on_text) options_.on_text(entry.name, kernel, true, VariantText(variant));
  if (options_.on_pass) options_.on_pass(entry.name, kernel, true);
  std::optional<Refusal> refusal = entry.make()->Run(variant);
  if (options_.on_pass) options_.on_pass(entry.name, kernel, false);
  if (refusal) return refusal;
  if (options_.on_text) options_.on_text(entry.name, kernel, false, VariantText(variant));
  if (!options_.verify) return std::nullopt;
  if (auto problem = VerifyVariant(variant)) return Refusal{"verifier", *problem};
  return std::nullopt;
}

std::optional<Refusal> Transformation::RunPasses(Variant& variant, const Pipeline& pipeline, KernelVariant& outcome) {
  outcome.passes.emplace_back(pipeline.front()->name);
  if (options_.placement != Placement::kReplace && module_.FindFunction(variant.final_name) != nullptr)
    return Refusal{"name-taken", fmt::format("there is a function {} already", variant.final_name)};
  if (std::any_of(done_.begin(), done_.end(),
                  [&](const Variant& other) { return other.final_name == variant.final_name; }))
    return Refusal{"name-taken", fmt::format("another list of passes makes {} already", variant.final_name)};
  outcome.passes.clear();
  if (options_.placement == Placement::kOnly) OwnCallees(variant);
  for (const PassEntry* entry : pipeline) {
    outcome.passes.emplace_back(entry->name);
    if (auto refusal = RunPass(variant, *entry)) return refusal;
  }
  return std::nullopt;
}

void Transformation::Run(const Function& kernel, const Pipeline& pipeline) {
  KernelVariant& outcome = result_.variants.emplace_back();
  outcome.kernel = kernel.name;
  Variant variant(module_, imports_, kernel, NameOf(kernel, pipeline), prefix_);
  if (auto refusal = RunPasses(variant, pipeline, outcome)) {
    outcome.refused_by = outcome.passes.back();
    outcome.refusal = std::move(*refusal);
    return;
  }
  variant.kernel.name = module_.arena().Keep(variant.final_name);
  // Found by name by whoever launches it.
  if (options_.placement != Placement::kReplace) variant.kernel.linkage = Linkage::kVisible;
  outcome.name = variant.final_name;
  outcome.hidden_parameter_offset = variant.hidden_parameter_offset;
  if (variant.has_slice_parameters) outcome.hidden_parameter_bytes = sizeof(device::SliceParameters);
  if (variant.has_persistent_parameters) outcome.hidden_parameter_bytes = sizeof(device::PersistentParameters);
  if (variant.has_gate) outcome.hidden_parameter_bytes = sizeof(device::GateParameters);
  outcome.gates_clusters = variant.gates_clusters;
  outcome.waits_for_blocks = variant.waits_for_blocks;
  outcome.extra_shared_bytes = variant.extra_shared_bytes;
  outcome.needs_warp_rows = variant.needs_warp_rows;
  done_.push_back(std::move(variant));
}

Transformed Transformation::Finish() {
  PlaceVariants(module_, done_, imports_, prefix_, options_.placement);
  result_.imports = imports_.variables();
  if (!result_.imports.empty()) result_.import_table = ImportTableName(prefix_);
  result_.text = PrintModule(module_);
  return std::move(result_);
}

}  // namespace

bool Transformed::is_all_done() const {
  return std::all_of(variants.begin(), variants.end(), [](const KernelVariant& variant) { return variant.is_done(); });
}

Result<Transformed> TransformText(std::string text, const TransformOptions& options) {
  std::vector<Pipeline> pipelines;
  for (const std::vector<std::string>& names : options.pipelines) {
    Result<Pipeline> pipeline = MakePipeline(names, options.disabled_passes);
    if (!pipeline) return std::unexpected(pipeline.error());
    pipelines.push_back(std::move(*pipeline));
  }
  if (pipelines.empty() || (options.placement == Placement::kReplace && pipelines.size() > 1))
    return Error(StatusCode::kInvalidArgument, "expected one list of passes, or several if the originals are kept");
  Result<Module> module = ParseModule(std::move(text), options.parse);
  if (!module) return std::unexpected(module.error());
  std::set<std::string_view> missing(options.kernels.begin(), options.kernels.end());
  Transformation transformation(*module, options);
  for (const Item& item : module->items()) {
    const auto* kernel = std::get_if<Function>(&item.node);
    if (kernel == nullptr || !kernel->is_entry || !kernel->has_body) continue;
    if (!options.kernels.empty() &&
        std::find(options.kernels.begin(), options.kernels.end(), kernel->name) == options.kernels.end())
      continue;
    missing.erase(kernel->name);
    for (const Pipeline& pipeline : pipelines) transformation.Run(*kernel, pipeline);
  }
  if (!missing.empty())
    return Error(StatusCode::kNotFound, fmt::format("the module has no kernel '{}'", *missing.begin()));
  return transformation.Finish();
}

std::vector<PassDescription> Passes() {
  std::vector<PassDescription> descriptions;
  for (const PassEntry& entry : AllPasses()) descriptions.push_back({entry.name, entry.purpose});
  return descriptions;
}

std::string PassesVersion() {
  std::string version;
  for (const PassEntry& entry : AllPasses()) version += fmt::format("{}.{} ", entry.name, entry.version);
  version.pop_back();
  return version;
}

}  // namespace tally::ptx_transforms
