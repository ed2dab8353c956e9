// One module of random kernels: the original against every variant.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "tests/sim-driver/differential/generator/generated_module.h"
#include "tests/sim-driver/differential/runner.h"
#include "tests/sim-driver/differential/variant_launch.h"

namespace tally::differential {

struct Failure {
  uint64_t seed = 0;
  std::string what;  // pipeline, kernel and what differs; "original: ..." if the generated kernel itself is no good
};

struct Totals {
  uint64_t modules = 0;
  uint64_t kernels = 0;
  LaunchCounts launches;
  struct OfPipeline {
    uint64_t done = 0;
    uint64_t wrong_shape = 0;                 // done, but not for blocks of this shape
    std::map<std::string, uint64_t> refused;  // code of the reason to number
  };
  std::map<std::string, OfPipeline> pipelines;
};

class Differential {
 public:
  // Called with every transformed text before it is compiled; returns what is run in its place. Nothing: this text is
  // of no use, try no variants. For seeded defects.
  using Damage = std::function<std::optional<std::string>(const std::string& pipeline, std::string text)>;

  Differential() = default;
  void set_damage(Damage damage) { damage_ = std::move(damage); }
  const Totals& totals() const { return totals_; }
  // Modules whose variants were run (that is all, but for damage that found nothing to do).
  uint64_t num_tried() const { return num_tried_; }

  // The first thing that is wrong. The same module always gets the same launches.
  std::optional<Failure> Check(const GeneratedModule& module);

 private:
  struct Original;
  std::optional<std::string> RunOriginal(const GeneratedModule& module, Original& original);
  std::optional<std::string> CheckVariants(const GeneratedModule& module, const Original& original,
                                           const ptx_transforms::TransformOptions& options, RandomSource& random);
  std::optional<std::string> RunPipeline(const GeneratedModule& module, const Original& original,
                                         const VariantProgram& program, const ptx_transforms::TransformOptions& options,
                                         size_t pipeline, RandomSource& random);

  Runner runner_;
  Damage damage_;
  Totals totals_;
  uint64_t num_tried_ = 0;
};

}  // namespace tally::differential
