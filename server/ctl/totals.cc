// totals.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "server/ctl/commands.h"
#include "server/ctl/control_call.h"
#include "server/ctl/session_json.h"
#include "server/ctl/table.h"

namespace tally::cli {
namespace {

namespace v1 = control::v1;

int ShowTotals(const Invocation& invocation) {
  v1::GetTotalsResponse totals;
  if (!Call(invocation.socket, [&](auto& stub, auto& context) { return stub.GetTotals(&context, {}, &totals); }))
    return 1;
  if (invocation.as_json) {
    fmt::print("{}\n", ToJson(totals).dump(2));
    return 0;
  }
  fmt::print("{} sessions ({} high-priority) in {} executors, {} of device memory\n", totals.sessions(),
             totals.high_priority_sessions(), totals.executors(), FormatBytes(totals.device_memory_bytes()));
  fmt::print("{} kernels and {} graphs launched, {} of all held back\n", totals.kernel_launches(),
             totals.graph_launches(), totals.held_launches());
  for (const v1::BusyTime& busy : totals.busy()) {
    fmt::print("{}: {} work for {:.3f} s\n", busy.gpu(), NameOf(busy.priority_class()),
               static_cast<double>(busy.busy_ns()) / 1e9);
  }
  return 0;
}

}  // namespace

Action DeclareTotals(CLI::App&) { return ShowTotals; }

}  // namespace tally::cli
