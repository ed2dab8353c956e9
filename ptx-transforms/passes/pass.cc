#include "ptx-transforms/passes/pass.h"

#include <fmt/format.h>

#include <charconv>

namespace tally::ptx_transforms {

std::optional<Refusal> CheckFeatures(const Features& features, std::span<const FeatureRule> rules) {
  for (const FeatureRule& rule : rules) {
    const FeatureSite* site = features.Find(rule.feature);
    if (site == nullptr) continue;
    std::string place =
        site->position.line == 0 ? site->what : fmt::format("{} at {}", site->what, site->position.ToString());
    return Refusal{std::string(rule.code), fmt::format("{} ({})", rule.sentence, place)};
  }
  return std::nullopt;
}

std::optional<Refusal> CheckUnderstood(const Variant& variant, const Features& features) {
  static constexpr FeatureRule kRules[] = {
      {Feature::kOpaque, "unknown-statement", "has a statement that the parser does not understand"},
      // ptxas 13.0: "Not a name of any known instruction", though it has the name.
      {Feature::kInternalInstruction, "internal-instruction",
       "has an instruction that assemblers take from NVIDIA's own compilers only"},
      {Feature::kUnknownInstruction, "unknown-instruction", "has an instruction that this version does not know"},
      {Feature::kUnknownBarrier, "unknown-barrier", "has a barrier of a form that this version does not know"},
      {Feature::kUnresolvedName, "unresolved-name", "uses a register or label that is not declared"},
  };
  if (variant.module.address_size != 64) return Refusal{"address-size", "addresses are not 64 bits wide"};
  const VersionDirective version = variant.module.version;
  if (version.major < 6)
    return Refusal{"ptx-version", fmt::format("PTX ISA {}.{} is older than 6.0", version.major, version.minor)};
  // A linear number of steps each, but constants that would be felt.
  constexpr size_t kMaxStatements = 400'000;
  if (variant.kernel.body.size() > kMaxStatements) return Refusal{"too-large", "has more than 400000 statements"};
  return CheckFeatures(features, kRules);
}

bool IsForTarget(const Module& module, uint32_t lowest) {
  for (const std::string_view target : module.targets) {
    if (!target.starts_with("sm_")) continue;
    uint32_t number = 0;
    std::from_chars(target.data() + 3, target.data() + target.size(), number);
    return number >= lowest;
  }
  return false;
}

bool IsInVersion(const Module& module, uint32_t major, uint32_t minor) {
  const VersionDirective version = module.version;
  return version.major > major || (version.major == major && version.minor >= minor);
}

}  // namespace tally::ptx_transforms
