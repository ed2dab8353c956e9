// The proof: the software GPU records every access of a launch, and each must lie in what was predicted for it. Kernels
// of nvcc with numbers that fit and that do not, random ones of the differential generator, and the corpus;
// fuzz_test.cc has more random ones. A prediction that is one element too tight must be found out.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "sim-driver/engine/program.h"
#include "tests/sim-driver/differential/generator/generated_module.h"
#include "tests/sim-driver/differential/world.h"
#include "tests/sim-driver/segments/random_index.h"
#include "tests/sim-driver/segments/recorded_launch.h"
#include "tests/sim-driver/segments/two_arenas.h"

namespace tally::ptx_transforms {
namespace {

using differential::RandomSource;

std::string TextOf(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  EXPECT_TRUE(file) << path;
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

std::vector<KernelSegments> SegmentsOf(const std::string& text) {
  const Result<Module> module = ParseModule(text);
  EXPECT_TRUE(module) << text;
  return module ? FindSegments(*module) : std::vector<KernelSegments>();
}

// Pointers into the arena where the parameter has 8 bytes, numbers elsewhere.
void PutAnything(const sim_driver::Kernel& kernel, uint64_t arena, RandomSource& random,
                 sim_driver::LaunchRequest& request) {
  for (const sim_driver::KernelParameter& parameter : kernel.parameters) {
    for (uint32_t at = 0; at + 4 <= parameter.size_bytes; at += 4)
      Put(request, parameter.offset_bytes + at, random.Chance(80) ? random.Below(200) : RandomSize(random));
    if (parameter.size_bytes != 8) continue;
    Put(request, parameter.offset_bytes, arena + kArenaMiddle - 65536 * random.Below(6));
  }
}

constexpr uint64_t kBudget = 100'000;  // thread instructions

TEST(Soundness, KernelsOfNvcc) {
  constexpr int kLaunches = 40;
  const std::string text = TextOf(TALLY_TEST_SEGMENT_KERNELS);
  const std::vector<KernelSegments> all = SegmentsOf(text);
  TwoArenas arena(text);
  ASSERT_TRUE(arena.is_good());
  RecordedLaunches launches;
  for (const KernelSegments& segments : all) {
    const auto kernel = arena.program().FindKernel(segments.kernel);
    ASSERT_TRUE(kernel);
    RandomSource random(std::hash<std::string>()(segments.kernel));
    for (int k = 0; k < kLaunches; ++k) {
      arena.Fill(random);
      sim_driver::LaunchRequest request = arena.Request(*kernel, random);
      const auto size = [&] { return random.Chance(60) ? random.Between(0, 80) : RandomSize(random); };
      if (segments.kernel == "struct_of_pointers") {
        for (uint32_t at = 0; at < 4; ++at) Put(request, at * 8, arena.base() + kArenaMiddle + at * 4096);
        for (uint32_t at = 0; at < 4; ++at) Put(request, 32 + at * 4, random.Below(100));
        Put(request, 48, random.Between(1, 6));
      } else if (segments.kernel == "pointers_in_memory") {
        for (uint32_t at = 0; at < 2; ++at)
          reinterpret_cast<uint64_t*>(arena.base())[at] = arena.base() + 4096 + at * 4096;
        Put(request, 0, arena.base());
        Put(request, 8, random.Below(40));
      } else {
        Put(request, 0, arena.base() + kArenaMiddle - random.Below(1000) * 16);
        Put(request, 8, arena.base() + kArenaMiddle - 131072 + random.Below(1000) * 16);
        for (uint32_t at = 16; at < 28; at += 4) Put(request, at, size());
      }
      const auto outside = launches.Check(std::move(request), segments, kBudget);
      ASSERT_FALSE(outside) << *outside;
    }
  }
  fmt::print("{}", Report("nvcc", launches.totals()));
  EXPECT_GT(launches.totals().accesses, 10'000u);
}

TEST(Soundness, KernelsOfTheDifferentialGenerator) {
  constexpr uint64_t kModules = 150;
  RecordedLaunches launches;
  for (uint64_t seed = 1; seed <= kModules; ++seed) {
    const differential::GeneratedModule module = differential::GenerateModule(seed);
    const std::string_view text = module.text;
    const auto program = sim_driver::CompileProgram({&text, 1});
    ASSERT_TRUE(program);
    const std::vector<KernelSegments> all = SegmentsOf(module.text);
    differential::World world(module, *program);
    for (size_t kernel = 0; kernel < module.kernels.size(); ++kernel) {
      const auto segments = std::find_if(
          all.begin(), all.end(), [&](const KernelSegments& of) { return of.kernel == module.kernels[kernel].name; });
      ASSERT_NE(segments, all.end());
      const auto outside = launches.Check(world.Request(kernel), *segments, 500'000'000);
      ASSERT_FALSE(outside) << "seed " << seed << ": " << *outside << module.text;
    }
  }
  fmt::print("{}", Report("differential generator", launches.totals()));
}

TEST(Soundness, Corpus) {
  RecordedLaunches launches;
  std::array<uint64_t, kNumSegmentClasses> at_best{};
  uint64_t kernels = 0, barriers = 0;
  for (const auto& entry : std::filesystem::directory_iterator(TALLY_TEST_PTX_CORPUS)) {
    if (entry.path().extension() != ".ptx") continue;
    const std::string text = TextOf(entry.path());
    const std::vector<KernelSegments> all = SegmentsOf(text);
    for (const KernelSegments& segments : all) {
      ++kernels;
      barriers += !segments.barriers.empty();
      for (const GlobalAccess& access : segments.accesses) ++at_best[static_cast<size_t>(access.at_best)];
    }
    const std::string_view view = text;
    if (!sim_driver::CompileProgram({&view, 1})) continue;  // what the engine does not know
    TwoArenas arena(text);
    for (const KernelSegments& segments : all) {
      const auto kernel = arena.program().FindKernel(segments.kernel);
      if (!kernel) continue;
      RandomSource random(std::hash<std::string>()(segments.kernel));
      for (int k = 0; k < 8; ++k) {
        arena.Fill(random);
        sim_driver::LaunchRequest request = arena.Request(*kernel, random);
        PutAnything(arena.program().kernels()[*kernel], arena.base(), random, request);
        const auto outside = launches.Check(std::move(request), segments, kBudget);
        ASSERT_FALSE(outside) << entry.path() << ": " << *outside;
      }
    }
  }
  fmt::print("{}", Report("corpus", launches.totals()));
  fmt::print("corpus at best: {} kernels, {} barriers; C0 {} C1 {} C2 {} C3 {} C4 {}\n", kernels, barriers, at_best[0],
             at_best[1], at_best[2], at_best[3], at_best[4]);
}

// What is wrong must be noticed: a guard that says one less, an atomic access taken for a load, a loop that goes round
// once less, a callee whose accesses are forgotten.
TEST(Soundness, MutantsAreCaught) {
  const std::string text = TextOf(TALLY_TEST_SEGMENT_KERNELS);
  const std::vector<KernelSegments> all = SegmentsOf(text);
  TwoArenas arena(text);
  ASSERT_TRUE(arena.is_good());
  const auto is_caught = [&](const char* name, auto damage) {
    const auto found = std::find_if(all.begin(), all.end(), [&](const auto& of) { return of.kernel == name; });
    EXPECT_NE(found, all.end()) << name;
    if (found == all.end()) return false;
    KernelSegments segments = *found;
    RandomSource random(1);
    for (const bool is_damaged : {false, true}) {
      if (is_damaged) damage(segments);
      sim_driver::LaunchRequest request = arena.Request(*arena.program().FindKernel(name), random);
      request.grid = {8, 1, 1};
      request.block = {32, 1, 1};
      Put(request, 0, arena.base() + kArenaMiddle);
      Put(request, 8, arena.base() + kArenaMiddle - 131072);
      for (uint32_t at = 16; at < 28; at += 4) Put(request, at, 100u);
      if (RecordedLaunches().Check(std::move(request), segments, kBudget).has_value() != is_damaged) return false;
    }
    return true;
  };
  EXPECT_TRUE(is_caught("copy_guarded", [](KernelSegments& segments) {
    // i < n becomes i < n - 1: "n" is the only operand of the guards that is a parameter.
    for (GlobalAccess& access : segments.accesses)
      for (AccessCondition& condition : access.conditions) {
        Formula& formula = segments.formula;
        const FormulaNode compare = formula[condition.predicate];
        if (compare.op != FormulaOp::kCompare) continue;
        const NodeId bound = formula.Operand(condition.predicate, 1);
        const NodeId less = formula.Make(FormulaOp::kSubtract, 32, false, {bound, formula.Constant(1, 32)});
        condition.predicate = formula.Make(FormulaOp::kCompare, 1, compare.is_signed,
                                           {formula.Operand(condition.predicate, 0), less}, compare.value);
      }
  }));
  EXPECT_TRUE(is_caught("histogram", [](KernelSegments& segments) {
    for (GlobalAccess& access : segments.accesses) access.kind = AccessKind::kRead;
  }));
  for (const char* kernel : {"product", "row_sum"})
    EXPECT_TRUE(is_caught(kernel, [](KernelSegments& segments) {
      for (CountedLoop& loop : segments.loops)
        for (TripTest& test : loop.tests)
          test.start =
              segments.formula.Make(FormulaOp::kAdd, segments.formula[test.start].bits, false, {test.start, test.step});
    })) << kernel;
  EXPECT_TRUE(is_caught("callees", [](KernelSegments& segments) {
    std::erase_if(segments.accesses, [](const GlobalAccess& access) { return access.kind == AccessKind::kRead; });
  }));
}

}  // namespace
}  // namespace tally::ptx_transforms
