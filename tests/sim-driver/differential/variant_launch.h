// Launches of transformed kernels as the executor makes them, but at random: which slices, how many persistent blocks,
// when they are asked to yield, or their queue is stopped.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "ptx-transforms/transform.h"
#include "tests/sim-driver/differential/generator/random_source.h"
#include "tests/sim-driver/differential/runner.h"
#include "tests/sim-driver/differential/world.h"

namespace tally::differential {

// A compiled text of TransformText, and what it said about itself.
struct VariantProgram {
  std::shared_ptr<const sim_driver::Program> program;
  const ptx_transforms::Transformed* transformed = nullptr;
  bool is_apart = false;  // Placement::kOnly
};

struct LaunchCounts {
  uint64_t runs = 0;    // launches of a slice, of persistent blocks or of a gated kernel
  uint64_t yields = 0;  // runs of persistent blocks that left blocks for a later one
  uint64_t stops = 0;   // runs of a gated kernel that did
};

// Runs every block of kernel `kernel` once, by launches of `variant`, each of which may use `budget` thread
// instructions. Nothing, or what went wrong.
std::optional<std::string> LaunchVariant(World& world, Runner& runner, RandomSource& random,
                                         const VariantProgram& program, const ptx_transforms::KernelVariant& variant,
                                         size_t kernel, uint64_t budget, LaunchCounts& counts);

// May the kernel be launched with blocks of that shape?
bool MayLaunch(const ptx_transforms::KernelVariant& variant, const Dim3& block);

}  // namespace tally::differential
