// Calls of the module's functions.
#include "tests/sim-driver/differential/generator/body.h"

namespace tally::differential {
namespace {

bool MayCall(const Body& body, const FunctionPlan& plan) {
  if (plan.has_barrier && (body.where != Spread::kBlock || !body.traits.has_barriers)) return false;
  if (!plan.may_exit) return true;
  return body.traits.is_kernel ? body.traits.exits == EarlyExits::kWild : body.traits.may_exit;
}

bool MayCallAny(const Body& body) {
  for (const FunctionPlan& plan : body.callable)
    if (MayCall(body, plan)) return true;
  return false;
}

void WriteCall(Body& body) {
  CodeWriter& code = body.code;
  std::vector<FunctionPlan> plans;
  for (const FunctionPlan& plan : body.callable)
    if (MayCall(body, plan)) plans.push_back(plan);
  const FunctionPlan& plan = body.random.Pick(plans);
  std::vector<std::string> values;
  for (uint32_t k = 0; k < plan.num_arguments; ++k) values.push_back(body.Word().name);
  bool is_guarded = !plan.has_barrier && body.random.Chance(15);
  std::string guard = is_guarded ? fmt::format("@{} ", body.Predicate().name) : "";
  std::string result = code.Word();
  std::string arguments;
  code.Line("{{");
  for (uint32_t k = 0; k < plan.num_arguments; ++k) {
    code.Line(".param .b32 given{};", k);
    code.Line("st.param.b32 \t[given{}+0], {};", k, values[k]);
    arguments += fmt::format("{}given{}", k == 0 ? "" : ", ", k);
  }
  code.Line(".param .b32 taken;");
  code.Line("{}call{} (taken), {}, ({});", guard, !is_guarded && body.random.Chance(50) ? ".uni" : "", plan.name,
            arguments);
  if (!is_guarded) code.Line("ld.param.b32 \t{}, [taken+0];", result);
  code.Line("}}");
  if (!is_guarded) body.Add(result, Spread::kThread);
}

constexpr StatementKind kKinds[] = {{5, &MayCallAny, &WriteCall}};

}  // namespace

std::span<const StatementKind> CallStatements() { return kKinds; }

}  // namespace tally::differential
