#include "ptx-transforms/opt/explain.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <nlohmann/json.hpp>

namespace tally::ptx_transforms {

std::string ExplainAsText(const Transformed& result) {
  std::string text;
  for (const KernelVariant& variant : result.variants) {
    if (!variant.is_done()) {
      text += fmt::format("{}: refused by {} [{}]: {}\n", variant.kernel, variant.refused_by, variant.refusal.code,
                          variant.refusal.sentence);
      continue;
    }
    text += fmt::format("{}: done as {} ({})", variant.kernel, variant.name, fmt::join(variant.passes, ", "));
    if (variant.needs_warp_rows) text += "; for blocks with block.x a multiple of 32, or of one row";
    text += '\n';
  }
  return text;
}

std::string ExplainAsJson(const Transformed& result) {
  nlohmann::ordered_json kernels = nlohmann::ordered_json::array();
  for (const KernelVariant& variant : result.variants) {
    nlohmann::ordered_json kernel = {{"kernel", variant.kernel}, {"passes", variant.passes}};
    if (variant.is_done()) {
      kernel["status"] = "done";
      kernel["name"] = variant.name;
      kernel["hidden_parameter_offset"] = variant.hidden_parameter_offset;
      kernel["hidden_parameter_bytes"] = variant.hidden_parameter_bytes;
      kernel["extra_shared_bytes"] = variant.extra_shared_bytes;
      kernel["needs_warp_rows"] = variant.needs_warp_rows;
      kernel["gates_clusters"] = variant.gates_clusters;
      kernel["waits_for_blocks"] = variant.waits_for_blocks;
    } else {
      kernel["status"] = "refused";
      kernel["refused_by"] = variant.refused_by;
      kernel["code"] = variant.refusal.code;
      kernel["reason"] = variant.refusal.sentence;
    }
    kernels.push_back(std::move(kernel));
  }
  nlohmann::ordered_json imports = nlohmann::ordered_json::array();
  for (const ImportedVariable& import : result.imports)
    imports.push_back({{"name", import.name}, {"is_constant", import.is_constant}, {"is_visible", import.is_visible}});
  const nlohmann::ordered_json all = {
      {"kernels", kernels}, {"import_table", result.import_table}, {"imports", imports}};
  return all.dump(2, ' ', false, nlohmann::json::error_handler_t::replace);
}

void PassTimes::On(std::string_view pass, bool is_start) {
  const auto now = std::chrono::steady_clock::now();
  if (is_start) {
    started_ = now;
    return;
  }
  Total& total = totals_[std::string(pass)];
  total.time += now - started_;
  ++total.runs;
}

std::string PassTimes::ToText() const {
  std::string text;
  for (const auto& [pass, total] : totals_)
    text += fmt::format("{:<18} {:>10.3f} ms in {} kernels\n", pass,
                        std::chrono::duration<double, std::milli>(total.time).count(), total.runs);
  return text;
}

}  // namespace tally::ptx_transforms
