#include "tests/sim-driver/differential/assembly.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "ptx-transforms/transform.h"

namespace tally::differential {
namespace {

using ptx_transforms::Placement;

constexpr uint32_t kArchitectures[] = {75, 80, 86, 89, 90, 100, 120};

struct Form {
  const char* what;
  ptx_transforms::TransformOptions options;
};

const Form kForms[] = {
    {"variants beside it", {.pipelines = {{"slice_grid"}, {"persistent_blocks", "yield_check"}, {"gate_entry"}}}},
    {"variants alone",
     {.pipelines = {{"slice_grid", "import_globals"},
                    {"persistent_blocks", "yield_check", "import_globals"},
                    {"gate_entry", "import_globals"}},
      .placement = Placement::kOnly}},
    {"unified", {.pipelines = {{"unify_barriers"}}, .placement = Placement::kReplace}},
};

uint32_t TargetOf(const std::string& text) {
  static constexpr std::string_view kDirective = ".target sm_";
  const size_t place = text.find(kDirective);
  return place == std::string::npos
             ? 0
             : static_cast<uint32_t>(std::strtoul(text.c_str() + place + kDirective.size(), nullptr, 10));
}

}  // namespace

std::optional<std::string> Assembly::Check(const GeneratedModule& module) {
  if (auto problem = Assemble(module, module.text, "the original")) return problem;
  for (const Form& form : kForms) {
    auto transformed = ptx_transforms::TransformText(module.text, form.options);
    if (!transformed) return fmt::format("{}: {}", form.what, transformed.error().ToString());
    if (auto problem = Assemble(module, transformed->text, form.what)) return problem;
  }
  return std::nullopt;
}

std::optional<std::string> Assembly::Assemble(const GeneratedModule& module, const std::string& text,
                                              const char* what) {
  const std::filesystem::path file =
      std::filesystem::temp_directory_path() / fmt::format("tally_differential_{}.ptx", getpid());
  std::ofstream(file) << text;
  std::optional<std::string> problem;
  for (const uint32_t architecture : kArchitectures) {
    if (architecture < TargetOf(module.text) || problem) continue;
    // Not optimised: what is asked is whether it is PTX.
    const std::string command = fmt::format("{} -O0 -arch=sm_{} {} -o /dev/null", ptxas_, architecture, file.native());
    ++num_assembled_;
    if (std::system(command.c_str()) != 0) problem = fmt::format("ptxas refuses {} for sm_{}", what, architecture);
  }
  std::filesystem::remove(file);
  return problem;
}

}  // namespace tally::differential
