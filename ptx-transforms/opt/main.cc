// ptx-opt: runs passes on a PTX file, or says which memory its kernels touch. See docs/ptx-opt.md.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <fstream>
#include <iostream>
#include <iterator>
#include <optional>
#include <string>
#include <vector>

#include "base/command_line.h"
#include "ptx-transforms/opt/explain.h"
#include "ptx-transforms/opt/launch_text.h"
#include "ptx-transforms/opt/segments_json.h"
#include "ptx-transforms/segments.h"
#include "ptx-transforms/transform.h"

namespace tally::ptx_transforms {
namespace {

constexpr int kTransformed = 0;
constexpr int kBadInput = 1;
constexpr int kRefused = 2;

struct Arguments {
  std::string input;
  std::string output = "-";
  std::vector<std::string> passes;
  std::vector<std::string> kernels;
  std::string placement = "add";
  std::string explain;
  std::string segments;
  std::string launch;
  std::vector<std::string> disabled_passes;
  bool print_before_all = false;
  bool print_after_all = false;
  bool time_passes = false;
  bool verify = true;
};

std::optional<std::string> ReadInput(const std::string& path) {
  if (path == "-") return std::string(std::istreambuf_iterator<char>(std::cin), {});
  std::ifstream file(path, std::ios::binary);
  if (!file) return std::nullopt;
  return std::string(std::istreambuf_iterator<char>(file), {});
}

bool WriteOutput(const std::string& path, const std::string& text) {
  if (path == "-") return static_cast<bool>(std::cout << text << std::flush);
  std::ofstream file(path, std::ios::binary);
  return static_cast<bool>(file << text << std::flush);
}

std::string PassesForHelp() {
  std::string text = "Passes, in the order in which they run:\n";
  for (const PassDescription& pass : Passes()) text += fmt::format("  {:<18} {}\n", pass.name, pass.purpose);
  return text +
         "\nClasses of accesses (--segments; each is wider than the one before):\n"
         "  C0       rows of bytes at a pitch, from the launch's numbers\n"
         "  C1       bounded, though memory decides where in the bounds\n"
         "  C2       the whole allocation that the pointer came from\n"
         "  C3       several allocations\n"
         "  C4       anything: the pointer was loaded from memory\n"
         "  barrier  nothing may run beside the kernel; a sentence says why\n"
         "\nExamples:\n"
         "  ptx-opt --pass=yield_check --explain kernels.ptx -o variants.ptx\n"
         "  ptx-opt --segments kernels.ptx\n"
         "  ptx-opt --segments --kernel=saxpy --launch '4 256 @4096 @4096 1000' kernels.ptx\n"
         "\nExit status: 0 all kernels transformed, or no barrier among them; 1 bad input; 2 some kernel was refused "
         "(--explain says why), or is a barrier.";
}

int RunSegments(const Arguments& arguments, const std::string& input) {
  const Result<Module> module = ParseModule(input);
  if (!module) {
    fmt::print(stderr, "ptx-opt: {}: {}\n", arguments.input, module.error().message());
    return kBadInput;
  }
  std::vector<KernelSegments> kernels = FindSegments(*module);
  std::vector<std::string> missing = arguments.kernels;
  std::erase_if(missing, [&](const std::string& name) {
    return std::any_of(kernels.begin(), kernels.end(), [&](const auto& one) { return one.kernel == name; });
  });
  if (!missing.empty()) {
    fmt::print(stderr, "ptx-opt: {}: there is no kernel {}\n", arguments.input, fmt::join(missing, ", "));
    return kBadInput;
  }
  if (!arguments.kernels.empty())
    std::erase_if(kernels, [&](const KernelSegments& one) {
      return std::find(arguments.kernels.begin(), arguments.kernels.end(), one.kernel) == arguments.kernels.end();
    });
  std::string text = arguments.segments == "json" ? SegmentsAsJson(kernels) + "\n" : "";
  for (const KernelSegments& kernel : kernels) {
    if (arguments.segments != "json") text += SegmentsAsText(kernel);
    if (arguments.launch.empty()) continue;
    const Result<std::string> launch = LaunchAsText(kernel, arguments.launch);
    if (!launch) {
      fmt::print(stderr, "ptx-opt: {}\n", launch.error().message());
      return kBadInput;
    }
    text += *launch;
  }
  if (!WriteOutput(arguments.output, text)) {
    fmt::print(stderr, "ptx-opt: cannot write {}\n", arguments.output);
    return kBadInput;
  }
  const bool has_barrier =
      std::any_of(kernels.begin(), kernels.end(), [](const auto& kernel) { return !BarriersOf(kernel).empty(); });
  return has_barrier ? kRefused : kTransformed;
}

int Run(const Arguments& arguments) {
  const std::optional<std::string> text = ReadInput(arguments.input);
  if (!text) {
    fmt::print(stderr, "ptx-opt: cannot read {}\n", arguments.input);
    return kBadInput;
  }
  if (!arguments.segments.empty()) return RunSegments(arguments, *text);
  TransformOptions options;
  options.pipelines = {arguments.passes};
  options.disabled_passes = arguments.disabled_passes;
  options.kernels = arguments.kernels;
  options.placement = arguments.placement == "replace" ? Placement::kReplace
                      : arguments.placement == "only"  ? Placement::kOnly
                                                       : Placement::kAdd;
  options.verify = arguments.verify;
  PassTimes times;
  if (arguments.time_passes) options.on_pass = [&](auto pass, auto, bool is_start) { times.On(pass, is_start); };
  if (arguments.print_before_all || arguments.print_after_all)
    options.on_text = [&](std::string_view pass, std::string_view kernel, bool is_start, std::string_view kernel_text) {
      if (is_start ? arguments.print_before_all : arguments.print_after_all)
        fmt::print(stderr, "// ---- {} {} {}\n{}\n", kernel, is_start ? "before" : "after", pass, kernel_text);
    };
  const Result<Transformed> result = TransformText(*text, options);
  if (!result) {
    fmt::print(stderr, "ptx-opt: {}: {}\n", arguments.input, result.error().message());
    return kBadInput;
  }
  if (!WriteOutput(arguments.output, result->text)) {
    fmt::print(stderr, "ptx-opt: cannot write {}\n", arguments.output);
    return kBadInput;
  }
  if (arguments.explain == "json") {
    fmt::print(stderr, "{}\n", ExplainAsJson(*result));
  } else if (!arguments.explain.empty()) {
    fmt::print(stderr, "{}", ExplainAsText(*result));
  }
  if (arguments.time_passes) fmt::print(stderr, "{}", times.ToText());
  return result->is_all_done() ? kTransformed : kRefused;
}

}  // namespace
}  // namespace tally::ptx_transforms

int main(int argc, char** argv) {
  tally::ptx_transforms::Arguments arguments;
  CLI::App app("Rewrites kernels in PTX so that they can give the GPU back, or says which memory they touch.",
               "ptx-opt");
  app.footer(tally::ptx_transforms::PassesForHelp());
  app.add_option("FILE", arguments.input, "PTX file, or - for standard input")->type_name("FILE")->required();
  app.add_option("-o,--output", arguments.output, "where the PTX or the segments go; - (default): standard output")
      ->type_name("FILE");
  app.add_option("--pass", arguments.passes, "passes to run, separated by commas; those that they need are added")
      ->type_name("PASSES")
      ->allow_extra_args(false)
      ->delimiter(',');
  app.add_option("--disable-pass", arguments.disabled_passes, "passes not to run, though --pass may name them")
      ->type_name("PASSES")
      ->allow_extra_args(false)
      ->delimiter(',');
  app.add_option("--kernel", arguments.kernels, "only these kernels (mangled names); default: all")
      ->type_name("NAMES")
      ->allow_extra_args(false)
      ->delimiter(',');
  app.add_option("--placement", arguments.placement,
                 "add: variants beside the originals; replace: in their place, with their names; only: without them")
      ->type_name("add|replace|only")
      ->check(CLI::IsMember({"add", "replace", "only"}));
  app.add_flag("--explain{text}", arguments.explain,
               "say per kernel what was done or why it was refused, on standard error; =json: as JSON")
      ->check(CLI::IsMember({"text", "json"}));
  app.add_flag("--print-before-all", arguments.print_before_all,
               "print every kernel before every pass, on standard error");
  app.add_flag("--print-after-all", arguments.print_after_all,
               "print every kernel after every pass, on standard error");
  app.add_flag("--time-passes", arguments.time_passes, "say how long each pass took, on standard error");
  app.add_flag("--segments{text}", arguments.segments,
               "instead of passes: say per kernel which memory it touches, and of what class; =json: as JSON")
      ->check(CLI::IsMember({"text", "json"}))
      ->excludes("--pass");
  app.add_option("--launch", arguments.launch,
                 "with --segments: what a launch touches, 'GRID BLOCK PARAMETERS'; @BYTES is a pointer to so many")
      ->type_name("LAUNCH");
  app.add_flag("!--no-verify", arguments.verify, "do not check the tree after every pass");
  app.callback([&] {
    if (arguments.passes.empty() && arguments.segments.empty())
      throw CLI::ValidationError("say what to do: --pass or --segments");
    if (!arguments.launch.empty() && arguments.segments != "text")
      throw CLI::ValidationError("--launch needs --segments, as text");
  });
  if (const auto exit_status = tally::ParseCommandLine(app, argc, argv, {.wrong_usage = 1})) return *exit_status;
  return tally::ptx_transforms::Run(arguments);
}
