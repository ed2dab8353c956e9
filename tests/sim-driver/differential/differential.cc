#include "tests/sim-driver/differential/differential.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>

#include "sim-driver/engine/program.h"

namespace tally::differential {
namespace {

using ptx_transforms::KernelVariant;
using ptx_transforms::Placement;
using ptx_transforms::TransformOptions;

constexpr uint64_t kOriginalBudget = 500'000'000;  // thread instructions

// What variants may use: transformed code is a little longer, and every run of persistent blocks starts anew.
uint64_t BudgetOf(uint64_t original_instructions) { return original_instructions * 20 + 2'000'000; }

std::string PipelineName(const std::vector<std::string>& passes) { return fmt::format("{}", fmt::join(passes, "+")); }

std::vector<TransformOptions> OptionsFor(RandomSource& random) {
  std::vector<std::string> slice{"slice_grid"};
  std::vector<std::string> persistent_blocks{"persistent_blocks", "yield_check"};
  std::vector<std::string> gate{"gate_entry"};
  std::vector<TransformOptions> all(2);
  // All in one module, or apart from the original's module, which is how the executor loads them.
  all[0].placement = random.Chance(40) ? Placement::kAdd : Placement::kOnly;
  all[0].pipelines = {slice, persistent_blocks, gate};
  if (random.Chance(15)) all[0].pipelines[1] = {"persistent_blocks"};
  if (all[0].placement == Placement::kOnly)
    for (std::vector<std::string>& passes : all[0].pipelines) passes.push_back("import_globals");
  all[1].placement = Placement::kReplace;
  all[1].pipelines = {
      random.Pick<std::vector<std::string>>({{"unify_barriers"}, {"unify_barriers"}, slice, persistent_blocks, gate})};
  return all;
}

}  // namespace

struct Differential::Original {
  std::shared_ptr<const sim_driver::Program> program;
  std::unique_ptr<World> end;  // the memory after all kernels ran
  std::vector<uint64_t> instructions;
};

// In the natural order and in another one, which must not show.
std::optional<std::string> Differential::RunOriginal(const GeneratedModule& module, Original& original) {
  std::string_view text = module.text;
  auto program = sim_driver::CompileProgram({&text, 1});
  if (!program) return program.error().ToString();
  original.program = *program;
  for (uint64_t seed : {uint64_t{0}, module.seed * 2 + 1}) {
    auto world = std::make_unique<World>(module, *program);
    for (size_t kernel = 0; kernel < module.kernels.size(); ++kernel) {
      sim_driver::LaunchRequest request = world->Request(kernel);
      request.schedule_seed = seed;
      if (auto problem = runner_.Run(std::move(request), kOriginalBudget)) return problem;
      if (seed == 0) original.instructions.push_back(runner_.thread_instructions());
      if (auto problem = world->CheckCounts(kernel)) return problem;
    }
    if (seed == 0) {
      original.end = std::move(world);
    } else if (auto difference = world->DifferenceFrom(*original.end)) {
      return "depends on the order of execution: " + *difference;
    }
  }
  return std::nullopt;
}

std::optional<std::string> Differential::RunPipeline(const GeneratedModule& module, const Original& original,
                                                     const VariantProgram& program, const TransformOptions& options,
                                                     size_t pipeline, RandomSource& random) {
  World world(module, original.program);
  for (size_t kernel = 0; kernel < module.kernels.size(); ++kernel) {
    const GeneratedKernel& generated = module.kernels[kernel];
    const KernelVariant& variant = program.transformed->variants[kernel * options.pipelines.size() + pipeline];
    if (variant.kernel != generated.name)
      return fmt::format("{} stands where {} should", variant.kernel, generated.name);
    Totals::OfPipeline& totals = totals_.pipelines[PipelineName(options.pipelines[pipeline])];
    uint64_t budget = BudgetOf(original.instructions[kernel]);
    std::optional<std::string> problem;
    if (!variant.is_done()) {
      ++totals.refused[variant.refusal.code];
      problem = runner_.Run(world.Request(kernel), budget);
    } else if (!MayLaunch(variant, generated.block)) {
      ++totals.wrong_shape;
      problem = runner_.Run(world.Request(kernel), budget);
    } else {
      ++totals.done;
      problem = LaunchVariant(world, runner_, random, program, variant, kernel, budget, totals_.launches);
    }
    if (!problem) problem = world.CheckCounts(kernel);
    if (problem) return fmt::format("kernel {}: {}", generated.name, *problem);
  }
  return world.DifferenceFrom(*original.end);
}

std::optional<std::string> Differential::CheckVariants(const GeneratedModule& module, const Original& original,
                                                       const TransformOptions& options, RandomSource& random) {
  auto transformed = ptx_transforms::TransformText(module.text, options);
  if (!transformed) return "transform: " + transformed.error().ToString();
  for (size_t pipeline = 0; pipeline < options.pipelines.size(); ++pipeline) {
    std::string name = PipelineName(options.pipelines[pipeline]);
    std::string text = transformed->text;
    if (damage_) {
      std::optional<std::string> damaged = damage_(name, std::move(text));
      if (!damaged) continue;
      text = std::move(*damaged);
    }
    ++num_tried_;
    std::string_view view = text;
    auto program = sim_driver::CompileProgram({&view, 1});
    if (!program) return fmt::format("{}: {}", name, program.error().ToString());
    if (auto problem = RunPipeline(module, original, {*program, &*transformed, options.placement == Placement::kOnly},
                                   options, pipeline, random))
      return fmt::format("{}: {}", name, *problem);
  }
  return std::nullopt;
}

std::optional<Failure> Differential::Check(const GeneratedModule& module) {
  ++totals_.modules;
  totals_.kernels += module.kernels.size();
  Original original;
  if (auto problem = RunOriginal(module, original)) return Failure{module.seed, "original: " + *problem};
  RandomSource random(module.seed ^ 0x6c61756e6368);
  for (const TransformOptions& options : OptionsFor(random)) {
    if (auto problem = CheckVariants(module, original, options, random)) return Failure{module.seed, *problem};
  }
  return std::nullopt;
}

}  // namespace tally::differential
