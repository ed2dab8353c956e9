// window.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "server/ctl/commands.h"
#include "server/ctl/control_call.h"
#include "server/ctl/window_table.h"

namespace tally::cli {
namespace {

int ShowWindows(const Invocation& invocation) {
  control::v1::ListSessionsResponse response;
  if (!Call(invocation.socket, [&](auto& stub, auto& context) { return stub.ListSessions(&context, {}, &response); }))
    return 1;
  if (invocation.as_json) {
    fmt::print("{}\n", WindowJson(response).dump(2));
    return 0;
  }
  const std::string table = WindowTable(response);
  fmt::print("{}", table.empty()
                       ? "no program has a window: 'tally-run --window=shadow PROGRAM' shows what one is good "
                         "for, --window makes use of it\n"
                       : table);
  return 0;
}

}  // namespace

Action DeclareWindow(CLI::App&) { return ShowWindows; }

}  // namespace tally::cli
