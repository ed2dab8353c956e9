// Random kernels against their variants, any number of them.
//
//   ptx-differential --kernels 10000 --seed 1        what the nightly run does
//   ptx-differential --kernels 400 --assemble /usr/local/cuda/bin/ptxas
//                                                    assembles them and their variants instead of running them
//   ptx-differential --seed 4711 --print             the PTX of one module
#include <fmt/format.h>

#include <CLI/CLI.hpp>

#include "tests/sim-driver/differential/assembly.h"
#include "tests/sim-driver/differential/differential.h"

namespace tally::differential {
namespace {

void PrintTotals(const Totals& totals) {
  fmt::print("{} modules, {} kernels, {} runs of variants, {} of them yielded\n", totals.modules, totals.kernels,
             totals.launches.runs, totals.launches.yields);
  for (const auto& [name, pipeline] : totals.pipelines) {
    uint64_t refused = 0;
    for (const auto& [code, count] : pipeline.refused) refused += count;
    fmt::print("{}: {} done, {} not for this shape of block, {} refused\n", name, pipeline.done, pipeline.wrong_shape,
               refused);
    for (const auto& [code, count] : pipeline.refused) fmt::print("    {:6} {}\n", count, code);
  }
}

uint64_t AssembleAll(const std::string& ptxas, uint64_t seed, uint64_t num_kernels, uint64_t num_failures) {
  Assembly assembly(ptxas);
  uint64_t failures = 0;
  uint64_t modules = 0;
  uint64_t kernels = 0;
  for (; kernels < num_kernels && failures < num_failures; ++seed) {
    const GeneratedModule module = GenerateModule(seed);
    ++modules;
    kernels += module.kernels.size();
    if (auto problem = assembly.Check(module)) {
      fmt::print("FAILED seed {}: {}\n", seed, *problem);
      ++failures;
    }
    std::fflush(stdout);
  }
  fmt::print("{} modules, {} kernels, assembled {} times\n", modules, kernels, assembly.num_assembled());
  return failures;
}

}  // namespace
}  // namespace tally::differential

int main(int argc, char** argv) {
  using namespace tally::differential;
  CLI::App app("Runs random PTX kernels and their variants on the software GPU and compares memory bit for bit.");
  uint64_t seed = 1;
  uint64_t num_kernels = 300;
  uint64_t num_failures = 10;
  bool prints = false;
  bool shows = false;
  std::string ptxas;
  app.add_option("--seed", seed, "of the first module; the next ones have the next numbers")->capture_default_str();
  app.add_option("--kernels", num_kernels, "stop when so many kernels have been checked")->capture_default_str();
  app.add_option("--failures", num_failures, "stop after so many")->capture_default_str();
  app.add_flag("--print", prints, "print the module of --seed and do nothing else");
  app.add_flag("--show", shows, "print every transformed text before it is run");
  app.add_option("--assemble", ptxas,
                 "run nothing: that ptxas must take every module and its variants for every architecture");
  CLI11_PARSE(app, argc, argv);
  if (prints) {
    fmt::print("{}", GenerateModule(seed).text);
    return 0;
  }
  if (!ptxas.empty()) {
    const uint64_t failures = AssembleAll(ptxas, seed, num_kernels, num_failures);
    fmt::print("{} failures\n", failures);
    return failures == 0 ? 0 : 1;
  }
  Differential differential;
  if (shows)
    differential.set_damage([](const std::string& pipeline, std::string text) {
      fmt::print("// ---- {}\n{}\n", pipeline, text);
      return std::optional(std::move(text));
    });
  uint64_t failures = 0;
  for (; differential.totals().kernels < num_kernels && failures < num_failures; ++seed) {
    if (auto failure = differential.Check(GenerateModule(seed))) {
      fmt::print("FAILED seed {}: {}\n", failure->seed, failure->what);
      ++failures;
    }
    std::fflush(stdout);
  }
  PrintTotals(differential.totals());
  fmt::print("{} failures\n", failures);
  return failures == 0 ? 0 : 1;
}
