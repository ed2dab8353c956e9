// A module: header, variables, functions, kernels.
#include <fmt/format.h>

#include "tests/sim-driver/differential/generator/generated_module.h"
#include "tests/sim-driver/differential/generator/kernel_generator.h"

namespace tally::differential {
namespace {

struct Target {
  uint32_t sm;
  uint32_t version;  // the first of PTX that knows it, times ten
};

std::string Table(RandomSource& random, const char* head) {
  std::string text = head;
  text += " = {";
  for (uint32_t k = 0; k < 64; ++k) text += fmt::format("{}{}", k == 0 ? "" : ", ", random.Next32());
  return text + "};\n";
}

}  // namespace

GeneratedModule GenerateModule(uint64_t seed) {
  RandomSource random(seed * 0x2545f4914f6cdd1d + 1);
  GeneratedModule generated;
  generated.seed = seed;
  auto target =
      random.Pick<Target>({{75, 70}, {80, 70}, {80, 78}, {86, 71}, {89, 78}, {90, 80}, {90, 80}, {100, 86}, {120, 87}});
  ModuleTraits traits;
  traits.target = target.sm;
  traits.version = random.Pick({target.version, std::max(target.version, 78u), 87u, 90u});
  traits.has_tables = random.Chance(60);
  traits.has_pointers = traits.has_tables && random.Chance(40);

  std::string& text = generated.text;
  text = fmt::format("// seed {}\n.version {}.{}\n.target sm_{}\n.address_size 64\n\n", seed, traits.version / 10,
                     traits.version % 10, traits.target);
  if (traits.has_tables) {
    text += Table(random, ".const .align 4 .u32 table_c[64]");
    text +=
        Table(random, random.Pick({".global .align 4 .u32 table_g[64]", ".visible .global .align 4 .u32 table_g[64]"}));
    text += random.Pick({".global .align 4 .b8 counters_g[64];\n", ".visible .global .align 4 .u32 counters_g[16];\n",
                         ".weak .global .align 4 .u32 counters_g[16] = {5, 6, 7};\n"});
  }
  if (traits.has_pointers) text += ".global .align 8 .u64 pointer_g = generic(table_g);\n";
  bool has_roles = random.Chance(15);
  if (has_roles) text += fmt::format(".visible .global .align 8 .u64 {}[{}];\n", kRolesVariable, kNumBuffers);

  std::vector<FunctionPlan> functions;
  std::string bodies;
  for (uint32_t k = random.Pick({0u, 0u, 0u, 1u, 2u, 3u}); k > 0; --k) {
    FunctionPlan plan;
    plan.name = fmt::format("function_{}", functions.size());
    plan.num_arguments = random.Between(1, 4);
    plan.has_barrier = random.Chance(30);
    plan.may_exit = !plan.has_barrier && random.Chance(20);
    plan.linkage = random.Pick({"", ".visible ", ".weak ", ""});
    if (random.Chance(40)) text += FunctionSignature(plan) + ";\n";
    bodies += WriteFunction(random, plan, traits, functions);
    functions.push_back(plan);
  }
  std::string kernels;
  for (uint32_t k = random.Pick({1u, 1u, 1u, 1u, 2u, 3u}); k > 0; --k) {
    std::string name = fmt::format("{}{}", random.Pick({"kernel_", "_Z6kernelPfi", "$k", "kernel_"}), k);
    bool has_parameters = !has_roles || random.Chance(30);
    KernelText written = WriteKernel(random, name, has_parameters, traits, functions);
    if (text.find(written.module_scope) == std::string::npos) text += written.module_scope;
    kernels += written.text;
    generated.kernels.push_back(std::move(written.kernel));
  }
  text += "\n" + bodies + kernels;
  return generated;
}

}  // namespace tally::differential
