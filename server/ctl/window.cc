// window.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <memory>
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

int ShowShapes(const Invocation& invocation) {
  control::v1::ListWindowShapesResponse response;
  if (!Call(invocation.socket,
            [&](auto& stub, auto& context) { return stub.ListWindowShapes(&context, {}, &response); })) {
    return 1;
  }
  SayIfLate(response.late_executors());
  if (invocation.as_json) {
    fmt::print("{}\n", ShapeJson(response).dump(2));
    return 0;
  }
  const std::string table = ShapeTable(response);
  fmt::print("{}",
             table.empty() ? "no shapes: no program with --window has launched the same batch twice yet\n" : table);
  return 0;
}

}  // namespace

Action DeclareWindow(CLI::App& app) {
  const auto shows_shapes = std::make_shared<bool>(false);
  app.add_flag("--shapes", *shows_shapes, "one line per shape of batch: how it is issued, and what that gains");
  return [shows_shapes](const Invocation& invocation) {
    return *shows_shapes ? ShowShapes(invocation) : ShowWindows(invocation);
  };
}

}  // namespace tally::cli
