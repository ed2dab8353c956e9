// How fast PTX is read and written, in bytes per second of text. The text is shaped like nvcc's, about 1 MB; set
// TALLY_BENCH_PTX to a file to measure that instead. Budget: parsing at 20 MB/s or more.
#include <benchmark/benchmark.h>

#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>

#include "ptx-transforms/ptx_module.h"
#include "ptx-transforms/syntax/lexer.h"

namespace tally::ptx_transforms {
namespace {

std::string Kernel(int index) {
  const std::string name = "_Z6Kernel" + std::to_string(index) + "PKfPfi";
  std::string text =
      "\n\t// .globl\t" + name + "\n.visible .entry " + name + "(\n\t.param .u64 .ptr .align 1 " + name +
      "_param_0,\n\t.param .u64 " + name + "_param_1,\n\t.param .u32 " + name +
      "_param_2\n)\n.maxntid 256\n{\n\t.reg .pred \t%p<4>;\n\t.reg .b32 \t%r<200>;\n\t.reg .b64 \t%rd<20>;\n" +
      "\t.shared .align 4 .b8 table[1024];\n\tld.param.u64 \t%rd1, [" + name + "_param_0];\n";
  for (int i = 0; i < 100; ++i) {
    const std::string r = "%r" + std::to_string(i + 1);
    text += "\t.loc\t1 " + std::to_string(i) + " 3\n\tmad.lo.s32 \t" + r + ", %r3, %r4, %r5;\n" +
            "\tld.global.nc.v2.f32 \t{%f1, %f2}, [%rd1+" + std::to_string(8 * i) + "];\n\tsetp.lt.s32 \t%p1, " + r +
            ", 17;\n\t@%p1 bra \t$L__BB" + std::to_string(index) + "_" + std::to_string(i) +
            ";\n\tfma.rn.f32 \t%f3, %f1, 0f3F800000, %f2;\n\tst.shared.f32 \t[table+" + std::to_string(4 * i) +
            "], %f3;\n\n$L__BB" + std::to_string(index) + "_" + std::to_string(i) + ":\n";
  }
  return text + "\tret;\n\n}\n";
}

const std::string& Text() {
  static const std::string text = [] {
    if (const char* path = std::getenv("TALLY_BENCH_PTX"); path != nullptr) {
      std::ifstream file(path, std::ios::binary);
      return std::string(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
    }
    std::string made = ".version 9.0\n.target sm_90\n.address_size 64\n\n";
    for (int i = 0; made.size() < 1'000'000; ++i) made += Kernel(i);
    return made;
  }();
  return text;
}

void CountBytes(benchmark::State& state) {
  state.SetBytesProcessed(static_cast<int64_t>(state.iterations() * Text().size()));
}

void Lex(benchmark::State& state) {
  for (auto _ : state) {
    Lexer lexer(Text());
    size_t num_tokens = 0;
    while (lexer.Next().kind != TokenKind::kEnd) ++num_tokens;
    benchmark::DoNotOptimize(num_tokens);
  }
  CountBytes(state);
}
BENCHMARK(Lex);

void Parse(benchmark::State& state) {
  for (auto _ : state) {
    Result<Module> module = ParseModule(Text());
    if (!module) state.SkipWithError(module.error().message().c_str());
    benchmark::DoNotOptimize(module);
  }
  CountBytes(state);
}
BENCHMARK(Parse);

void PrintUntouched(benchmark::State& state) {
  const Result<Module> module = ParseModule(Text());
  if (!module) return state.SkipWithError(module.error().message().c_str());
  for (auto _ : state) benchmark::DoNotOptimize(PrintModule(*module));
  CountBytes(state);
}
BENCHMARK(PrintUntouched);

// Every second instruction was edited.
void PrintEdited(benchmark::State& state) {
  Result<Module> module = ParseModule(Text());
  if (!module) return state.SkipWithError(module.error().message().c_str());
  for (Item& item : module->items()) {
    auto* function = std::get_if<Function>(&item.node);
    if (function == nullptr) continue;
    for (size_t i = 0; i < function->body.size(); i += 2) function->body[i].edited = true;
  }
  for (auto _ : state) benchmark::DoNotOptimize(PrintModule(*module));
  CountBytes(state);
}
BENCHMARK(PrintEdited);

}  // namespace
}  // namespace tally::ptx_transforms
