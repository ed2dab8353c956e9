// cubin-gate: puts gates into machine code, and says which kernels can have one. See docs/cubin-gate.md.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/command_line.h"
#include "cubin-transforms/add_gates.h"
#include "cubin-transforms/tool/census.h"
#include "cubin-transforms/tool/library_cubins.h"
#include "cubin-transforms/tool/nv_linker.h"

namespace tally::cubin_transforms {
namespace {

constexpr int kAllGated = 0;
constexpr int kBadInput = 1;
constexpr int kSomeRefused = 2;

struct Arguments {
  std::string input;
  std::string output;
  std::string explain;
  uint32_t arch = 0;
  std::string linker;
  GateOptions gates;
  std::vector<std::string> census;
  std::string format = "text";
};

int Fail(const std::string& what) {
  fmt::print(stderr, "cubin-gate: {}\n", what);
  return kBadInput;
}

std::string Describe(const GatedKernel& kernel) {
  return kernel.is_gated() ? fmt::format("gated, its {} bytes of parameters continue at {}", kernel.parameter_bytes,
                                         kernel.hidden_offset)
                           : "refused: " + kernel.refusal;
}

nlohmann::ordered_json AsJson(const GatedKernel& kernel) {
  nlohmann::ordered_json json = {{"kernel", kernel.name},
                                 {"status", kernel.is_gated() ? "gated" : "refused"},
                                 {"parameter_bytes", kernel.parameter_bytes}};
  if (kernel.is_gated()) {
    json["hidden_parameter_offset"] = kernel.hidden_offset;
    json["hidden_parameter_ordinal"] = kernel.num_parameters;
  } else {
    json["reason"] = kernel.refusal;
  }
  return json;
}

int Gate(const Arguments& arguments, const NvLinker* linker) {
  const Result<MappedFile> file = MappedFile::Open(arguments.input);
  if (!file) return Fail(file.error().message());
  size_t num_cubins = 0, num_bad = 0, num_kernels = 0, num_refused = 0;
  GatedImage last;
  nlohmann::ordered_json cubins = nlohmann::ordered_json::array();
  ForEachCubin(file->bytes(), [&](const FoundCubin& cubin) {
    if (arguments.arch != 0 && cubin.arch != arguments.arch) return;
    ++num_cubins;
    const std::string where =
        fmt::format("container {}, sm_{}{}", cubin.container, cubin.arch, cubin.is_arch_specific ? "a" : "");
    std::string why_not_linked;
    const auto bytes = LinkIfNeeded(cubin, linker, &why_not_linked);
    if (!why_not_linked.empty()) fmt::print(stderr, "cubin-gate: {}: {}\n", where, why_not_linked);
    Result<GatedImage> image = bytes ? AddGates(*bytes, arguments.gates) : std::unexpected(bytes.error());
    if (!image) {
      fmt::print(stderr, "cubin-gate: {}: {}\n", where, image.error().message());
      ++num_bad;
      return;
    }
    num_kernels += image->kernels.size();
    num_refused += image->kernels.size() - image->num_gated();
    if (arguments.explain == "json") {
      nlohmann::ordered_json kernels = nlohmann::ordered_json::array();
      for (const GatedKernel& kernel : image->kernels) kernels.push_back(AsJson(kernel));
      cubins.push_back({{"container", cubin.container}, {"arch", cubin.arch}, {"kernels", std::move(kernels)}});
    } else if (!arguments.explain.empty()) {
      fmt::print("{}: {} of {} kernels gated\n", where, image->num_gated(), image->kernels.size());
      for (const GatedKernel& kernel : image->kernels) fmt::print("  {}: {}\n", kernel.name, Describe(kernel));
    }
    last = std::move(*image);
  });
  if (arguments.explain == "json")
    fmt::print("{}\n", nlohmann::ordered_json{{"cubins", cubins}}.dump(2, ' ', false,
                                                                       nlohmann::json::error_handler_t::replace));
  if (num_cubins == 0) return Fail(arguments.input + " holds no cubin" + (arguments.arch != 0 ? " of that kind" : ""));
  if (num_bad != 0) return kBadInput;
  if (!arguments.output.empty()) {
    if (num_cubins != 1) return Fail(fmt::format("{} cubins: --output takes one; choose with --arch", num_cubins));
    std::ofstream out(arguments.output, std::ios::binary);
    out.write(reinterpret_cast<const char*>(last.cubin.data()), static_cast<std::streamsize>(last.cubin.size()));
    if (!out.flush()) return Fail("cannot write " + arguments.output);
  }
  return num_refused == 0 ? kAllGated : kSomeRefused;
}

int Count(const Arguments& arguments, const NvLinker* linker) {
  Census census;
  for (const std::string& path : arguments.census)
    if (const Status status = CountFile(path, linker, arguments.gates, census); !status.ok())
      return Fail(status.message());
  fmt::print("{}", arguments.format == "json"       ? CensusAsJson(census) + "\n"
                   : arguments.format == "markdown" ? CensusAsMarkdown(census)
                                                    : CensusAsText(census));
  for (const CensusRow& row : census.rows)
    if (row.gated != row.kernels || !row.unreadable.empty()) return kSomeRefused;
  return kAllGated;
}

int Run(const Arguments& arguments) {
  const Result<NvLinker> linker = NvLinker::Open(arguments.linker);
  if (!linker && !arguments.linker.empty())
    return Fail(fmt::format("--linker {}: {}", arguments.linker, linker.error().message()));
  const NvLinker* const found = linker ? &*linker : nullptr;
  return arguments.census.empty() ? Gate(arguments, found) : Count(arguments, found);
}

constexpr const char* kFooter =
    "\nA gate is a few instructions in front of a kernel's own: blocks that have not begun leave at once when their "
    "queue\n"
    "is stopped, and run later, each exactly once (docs/preemption.md).\n"
    "\nExamples:\n"
    "  cubin-gate --explain kernels.cubin -o gated.cubin      gate a cubin, and say what became of each kernel\n"
    "  cubin-gate --explain=json --arch 90 libfoo.so          the same for the sm_90 code in a library\n"
    "  cubin-gate --arch 90 kernels.fatbin -o gated.cubin     the gated cubin out of a fat binary\n"
    "  cubin-gate --census /usr/local/cuda/lib64/*.so.*       what share of the kernels can be gated\n"
    "\nExit status:\n"
    "  0  all kernels can be gated\n"
    "  1  bad input\n"
    "  2  some kernel was refused (--explain says why)";

}  // namespace
}  // namespace tally::cubin_transforms

int main(int argc, char** argv) {
  tally::cubin_transforms::Arguments arguments;
  CLI::App app("Puts gates into CUDA machine code, so that its kernels can give the GPU back.", "cubin-gate");
  app.footer(tally::cubin_transforms::kFooter);
  app.set_version_flag("--version", "cubin-gate " TALLY_VERSION);
  auto* input = app.add_option("FILE", arguments.input, "a cubin, a fat binary, or a file with fat binaries inside")
                    ->type_name("FILE");
  app.add_option("-o,--output", arguments.output, "where the gated cubin goes; default: nowhere")->type_name("FILE");
  app.add_option("--arch", arguments.arch, "only cubins for this architecture, 90 for sm_90; default: all")
      ->type_name("NUMBER");
  app.add_flag("--explain{text}", arguments.explain,
               "say per kernel what was done or why it was refused; =json: as JSON")
      ->check(CLI::IsMember({"text", "json"}));
  app.add_flag("--accept-entry-fragments", arguments.gates.accepts_entry_fragments,
               "gate kernels with tensor memory (tcgen05), too, which Tally leaves alone: no such GPU has been seen");
  app.add_option(
         "--linker", arguments.linker,
         "libnvJitLink, which links relocatable cubins first; default: wherever it is found, else they are refused")
      ->type_name("FILE");
  app.add_option("--census", arguments.census, "count, per file and architecture, the kernels that can be gated")
      ->type_name("FILE")
      ->excludes(input);
  app.add_option("--format", arguments.format, "of the census: text, markdown or json")
      ->type_name("text|markdown|json")
      ->check(CLI::IsMember({"text", "markdown", "json"}));
  if (const auto exit_status = tally::ParseCommandLine(app, argc, argv, {.wrong_usage = 1})) return *exit_status;
  if (arguments.input.empty() && arguments.census.empty()) {
    return tally::cubin_transforms::Fail("say which file: 'cubin-gate --help' says more");
  }
  return tally::cubin_transforms::Run(arguments);
}
