// How long it takes to make variants: parse, transform and print, per kilobyte of PTX (s_per_kB). About 1 MB of text
// shaped like nvcc's, or the file named by TALLY_BENCH_PTX.
#include <benchmark/benchmark.h>

#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>

#include "ptx-transforms/transform.h"

namespace tally::ptx_transforms {
namespace {

// A kernel with an early return, loops, barriers, shuffles and a variable of the module.
std::string Kernel(int index) {
  const std::string name = "_Z6Kernel" + std::to_string(index) + "PKfPfi";
  std::string text = "\n.visible .entry " + name + "(\n\t.param .u64 " + name + "_param_0,\n\t.param .u32 " + name +
                     "_param_1\n)\n.maxntid 256\n{\n\t.reg .pred \t%p<9>;\n\t.reg .b32 \t%r<200>;\n\t.reg .b64 "
                     "\t%rd<20>;\n\t.shared .align 4 .b8 table[1024];\n\tld.param.u64 \t%rd1, [" +
                     name + "_param_0];\n\tld.param.u32 \t%r7, [" + name +
                     "_param_1];\n\tmov.u32 \t%r1, %ctaid.x;\n\tmov.u32 \t%r2, %ntid.x;\n\tmov.u32 \t%r3, "
                     "%tid.x;\n\tmad.lo.s32 \t%r4, %r1, %r2, %r3;\n\tsetp.ge.s32 \t%p1, %r4, %r7;\n\t@%p1 bra "
                     "\t$L_end;\n";
  for (int i = 0; i < 60; ++i) {
    const std::string r = "%r" + std::to_string(i + 10);
    const std::string label = "$L_" + std::to_string(i);
    text += "\tmad.lo.s32 \t" + r + ", %r3, %r4, %r5;\n" + label + ":\n\tld.global.nc.u32 \t%r5, [%rd1+" +
            std::to_string(4 * i) + "];\n\tadd.s32 \t" + r + ", " + r + ", %r5;\n\tsetp.lt.s32 \t%p2, " + r +
            ", 17;\n\t@%p2 bra \t" + label + ";\n\tst.shared.u32 \t[table+" + std::to_string(4 * i) + "], " + r +
            ";\n\tbar.sync \t0;\n\tld.global.u32 \t%r6, [counter];\n";
  }
  return text + "$L_end:\n\tret;\n\n}\n";
}

const std::string& Text() {
  static const std::string text = [] {
    if (const char* path = std::getenv("TALLY_BENCH_PTX"); path != nullptr) {
      std::ifstream file(path, std::ios::binary);
      return std::string(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
    }
    std::string made = ".version 9.0\n.target sm_90\n.address_size 64\n.visible .global .u32 counter;\n";
    for (int i = 0; made.size() < 1'000'000; ++i) made += Kernel(i);
    return made;
  }();
  return text;
}

void Transform(benchmark::State& state, const std::vector<std::vector<std::string>>& pipelines, bool verify) {
  TransformOptions options = {.pipelines = pipelines, .placement = Placement::kOnly, .verify = verify};
  for (auto _ : state) {
    const Result<Transformed> result = TransformText(Text(), options);
    if (!result) return state.SkipWithError(result.error().message().c_str());
    benchmark::DoNotOptimize(result->text.data());
  }
  using benchmark::Counter;
  state.counters["s_per_kB"] =
      Counter(static_cast<double>(Text().size()) / 1000, Counter::kIsIterationInvariantRate | Counter::kInvert);
}

void Slice(benchmark::State& state) { Transform(state, {{"slice_grid"}}, false); }
BENCHMARK(Slice)->Unit(benchmark::kMillisecond);
void PersistentBlocks(benchmark::State& state) { Transform(state, {{"yield_check"}}, false); }
BENCHMARK(PersistentBlocks)->Unit(benchmark::kMillisecond);
// As the executor does it: both variants, with imported variables, checked.
void Everything(benchmark::State& state) {
  Transform(state, {{"slice_grid", "import_globals"}, {"yield_check", "import_globals"}}, true);
}
BENCHMARK(Everything)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace tally::ptx_transforms
