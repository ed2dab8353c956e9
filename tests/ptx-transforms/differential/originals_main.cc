#include <fmt/format.h>
#include <cstdlib>
#include "sim-driver/engine/program.h"
#include "tests/ptx-transforms/differential/runner.h"
#include "tests/ptx-transforms/differential/world.h"
using namespace tally;
using namespace tally::differential;
int main(int argc, char** argv) {
  uint64_t first = strtoull(argv[1], nullptr, 0), count = strtoull(argv[2], nullptr, 0);
  Runner runner; int bad = 0; uint64_t kernels = 0, instr = 0;
  for (uint64_t seed = first; seed < first + count; ++seed) {
    GeneratedModule m = GenerateModule(seed);
    if (argc > 3) { fmt::print("{}", m.text); }
    std::string_view view = m.text;
    auto program = sim_driver::CompileProgram({&view, 1});
    if (!program) { fmt::print("seed {}: {}\n", seed, program.error().ToString()); ++bad; continue; }
    std::unique_ptr<World> ref;
    for (uint64_t order = 0; order < 3; ++order) {
      auto w = std::make_unique<World>(m);
      bool stop = false;
      for (size_t k = 0; k < m.kernels.size(); ++k) {
        auto r = w->Request(*program, k, m.kernels[k].name);
        r.schedule_seed = order == 0 ? 0 : seed * 7 + order;
        if (auto p = runner.Run(std::move(r), 200'000'000)) { fmt::print("seed {} order {}: {}\n", seed, order, *p); ++bad; stop = true; break; }
        instr += runner.thread_instructions();
        if (auto p = w->CheckCounts(k)) { fmt::print("seed {} order {}: {}\n", seed, order, *p); ++bad; stop = true; break; }
        ++kernels;
      }
      if (stop) break;
      if (!ref) ref = std::move(w);
      else if (auto d = w->DifferenceFrom(*ref)) { fmt::print("seed {} order {}: {}\n", seed, order, *d); ++bad; break; }
    }
  }
  fmt::print("{} bad; {} kernel runs, {} instr\n", bad, kernels, instr);
}
