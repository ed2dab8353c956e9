// graphs and graph.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>

#include "server/ctl/commands.h"
#include "server/ctl/control_call.h"
#include "server/ctl/graph_table.h"

namespace tally::cli {
namespace {

namespace v1 = control::v1;

bool Fetch(const Invocation& invocation, v1::ListGraphsResponse* response) {
  if (!Call(invocation.socket, [&](auto& stub, auto& context) { return stub.ListGraphs(&context, {}, response); })) {
    return false;
  }
  SayIfLate(response->late_executors());
  return true;
}

void Show(const Invocation& invocation, const v1::ListGraphsResponse& response) {
  if (invocation.as_json) return fmt::print("{}\n", GraphJson(response).dump(2));
  const std::string table = GraphTable(response);
  fmt::print("{}", table.empty() ? "no graphs: no program whose kernels tallyd can stop has made one\n" : table);
}

int ShowGraphs(const Invocation& invocation) {
  v1::ListGraphsResponse response;
  if (!Fetch(invocation, &response)) return 1;
  Show(invocation, response);
  return 0;
}

int ShowGraph(const Invocation& invocation, const GraphName& name) {
  v1::ListGraphsResponse all, one;
  if (!Fetch(invocation, &all)) return 1;
  const auto found = std::ranges::find_if(all.graphs(), [&](const v1::Graph& graph) {
    return graph.session_id() == name.session_id && graph.number() == name.number;
  });
  if (found == all.graphs().end()) {
    fmt::print(stderr, "tallyctl: there is no graph {}.{}: see 'tallyctl graphs'\n", name.session_id, name.number);
    return 1;
  }
  *one.add_graphs() = *found;
  Show(invocation, one);
  return 0;
}

int DrawGraph(const Invocation& invocation, const GraphName& name) {
  v1::DrawGraphRequest request;
  request.set_session_id(name.session_id);
  request.set_number(name.number);
  v1::DrawGraphResponse response;
  const bool is_drawn =
      Call(invocation.socket, [&](auto& stub, auto& context) { return stub.DrawGraph(&context, request, &response); });
  if (!is_drawn) return 1;
  fmt::print("{}", response.dot());
  return 0;
}

}  // namespace

Action DeclareGraphs(CLI::App&) { return ShowGraphs; }

Action DeclareGraph(CLI::App& app) {
  const auto id = std::make_shared<std::string>();
  const auto is_drawn = std::make_shared<bool>(false);
  app.add_option("ID", *id, "as 'tallyctl graphs' has it, like 7.1")->required();
  app.add_flag("--dot", *is_drawn, "the graph by partition, or its plan by GPU, in Graphviz's language");
  return [id, is_drawn](const Invocation& invocation) {
    const auto name = ParseGraphName(*id);
    if (!name) {
      fmt::print(stderr, "tallyctl: '{}' is no graph: say one like 7.1, as 'tallyctl graphs' has it\n", *id);
      return 2;
    }
    return *is_drawn ? DrawGraph(invocation, *name) : ShowGraph(invocation, *name);
  };
}

}  // namespace tally::cli
