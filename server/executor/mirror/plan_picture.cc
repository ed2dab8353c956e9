#include "server/executor/mirror/plan_picture.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "base/graphviz.h"

namespace tally::server {
namespace {

using Step = PlanOutline::Step;
using std::chrono::nanoseconds;

std::string What(const PlanOutline& outline, const Step& step) {
  switch (step.kind) {
    case PlanOutline::Kind::kTask: {
      const std::string name = step.name < outline.names.size() ? outline.names[step.name] : "";
      return fmt::format("task {}{}{}, {} node{}", step.task, name.empty() ? "" : ": ", GraphvizLabel(name),
                         step.num_nodes, step.num_nodes == 1 ? "" : "s");
    }
    case PlanOutline::Kind::kMove:
      return fmt::format("{} bytes from GPU {}", step.num_bytes, step.from);
    case PlanOutline::Kind::kDrop:
      return "room given up";
  }
  return "";
}

std::string Span(const char* word, nanoseconds begin, nanoseconds end) {
  const auto ms = [](nanoseconds time) { return static_cast<double>(time.count()) / 1e6; };
  return fmt::format("\\n{} {:.3f} to {:.3f} ms", word, ms(begin), ms(end));
}

}  // namespace

std::string PlanPicture(const PlanOutline& outline, std::span<const StepTimes> times) {
  uint32_t num_gpus = 0;
  for (const Step& step : outline.steps) num_gpus = std::max(num_gpus, step.gpu + 1);
  std::string text = "digraph graph_on_several_gpus {\n  rankdir=LR;\n  node [shape=box];\n";
  const auto out = std::back_inserter(text);
  for (uint32_t gpu = 0; gpu < num_gpus; ++gpu) {
    fmt::format_to(out, "  subgraph cluster_{} {{\n    label=\"GPU {}{}\";\n", gpu, gpu, gpu == 0 ? ", home" : "");
    for (size_t i = 0; i < outline.steps.size(); ++i) {
      const Step& step = outline.steps[i];
      if (step.gpu != gpu) continue;
      const bool has_run = i < times.size() && times[i].end.count() != 0;
      fmt::format_to(out, "    s{} [label=\"{}{}{}\"];\n", i, What(outline, step),
                     Span("planned", step.planned_begin, step.planned_end),
                     has_run ? Span("ran", times[i].begin, times[i].end) : "");
    }
    text += "  }\n";
  }
  for (size_t i = 0; i < outline.steps.size() && outline.steps.size() <= kMostStepsWithEdges; ++i) {
    for (const uint32_t before : outline.steps[i].after) fmt::format_to(out, "  s{} -> s{};\n", before, i);
  }
  return text + "}\n";
}

}  // namespace tally::server
