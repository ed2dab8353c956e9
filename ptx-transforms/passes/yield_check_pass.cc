#include "ptx-transforms/passes/yield_check_pass.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/check.h"
#include "proto/device/variant_abi.h"
#include "ptx-transforms/passes/edit.h"

namespace tally::ptx_transforms {
namespace {

class YieldCheckPass : public Pass {
 public:
  std::optional<Refusal> Run(Variant& variant) override;
};

std::optional<Refusal> YieldCheckPass::Run(Variant& variant) {
  CHECK(variant.has_persistent_parameters);
  const std::string flag = variant.Register("flag");
  const std::string value = variant.Register("flag_value");
  const std::string is_clear = variant.Register("is_clear");
  const std::string index = variant.Register("index");
  const std::string unasked = variant.Label("unasked");
  // The flag may be in host memory: volatile reads it anew at system scope. It is read by one thread of the block.
  const std::string check =
      fmt::format("ld.param.u64 {}, [{}+{}];\n", flag, variant.Symbol("persistent"),
                  offsetof(device::PersistentParameters, yield_flag)) +
      fmt::format("setp.eq.u64 {1}, {0}, 0;\n@{1} bra {2};\n", flag, is_clear, unasked) +
      fmt::format("cvta.to.global.u64 {0}, {0};\nld.volatile.global.u32 {1}, [{0}];\n", flag, value) +
      fmt::format("setp.eq.u32 {0}, {1}, 0;\n@{0} bra {2};\n", is_clear, value, unasked) +
      fmt::format("mov.u32 {}, -1;\nbra {};\n{}:\n", index, variant.Label("publish"), unasked);
  const std::string take = variant.Label("take");
  auto& body = variant.kernel.body;
  const auto place = std::find_if(body.begin(), body.end(), [&](const Statement& statement) {
    const auto* label = std::get_if<Label>(&statement.node);
    return label != nullptr && label->name == take;
  });
  CHECK(place != body.end());
  std::vector<Statement> statements = ParseSnippet(variant.module, check);
  body.insert(place + 1, std::make_move_iterator(statements.begin()), std::make_move_iterator(statements.end()));
  InsertPrologue(variant.kernel,
                 ParseSnippet(variant.module,
                              fmt::format(".reg .b64 {};\n.reg .b32 {};\n.reg .pred {};\n", flag, value, is_clear)));
  return std::nullopt;
}

}  // namespace

std::unique_ptr<Pass> MakeYieldCheckPass() { return std::make_unique<YieldCheckPass>(); }

}  // namespace tally::ptx_transforms
