#include "server/executor/mirror/plan_picture.h"

#include <gtest/gtest.h>

namespace tally::server {
namespace {

using std::chrono::microseconds;

PlanOutline Outline() {
  using enum PlanOutline::Kind;
  PlanOutline outline;
  outline.steps = {
      {.kind = kTask, .task = 7, .num_nodes = 1, .name = 0, .planned_end = microseconds(500)},
      {.kind = kMove,
       .gpu = 1,
       .num_bytes = 4096,
       .planned_begin = microseconds(500),
       .planned_end = microseconds(510),
       .after = {0}},
      {.kind = kTask,
       .gpu = 1,
       .task = 3,
       .num_nodes = 12,
       .name = 1,
       .planned_begin = microseconds(510),
       .planned_end = microseconds(1510),
       .after = {0, 1}},
      {.kind = kDrop, .gpu = 1, .after = {2}},
  };
  outline.names = {"gemm", ""};
  return outline;
}

TEST(PlanPicture, HasStepsByGpuWithBothTimes) {
  const std::vector<StepTimes> times = {{microseconds(1), microseconds(600)},
                                        {microseconds(620), microseconds(650)},
                                        {microseconds(660), microseconds(0)}};
  EXPECT_EQ(PlanPicture(Outline(), times), R"(digraph graph_on_several_gpus {
  rankdir=LR;
  node [shape=box];
  subgraph cluster_0 {
    label="GPU 0, home";
    s0 [label="task 7: gemm, 1 node\nplanned 0.000 to 0.500 ms\nran 0.001 to 0.600 ms"];
  }
  subgraph cluster_1 {
    label="GPU 1";
    s1 [label="4096 bytes from GPU 0\nplanned 0.500 to 0.510 ms\nran 0.620 to 0.650 ms"];
    s2 [label="task 3, 12 nodes\nplanned 0.510 to 1.510 ms"];
    s3 [label="room given up\nplanned 0.000 to 0.000 ms"];
  }
  s0 -> s1;
  s0 -> s2;
  s1 -> s2;
  s2 -> s3;
}
)");
}

// Names are what a program calls its kernels.
TEST(PlanPicture, ANameIsNoMoreThanAName) {
  PlanOutline outline = Outline();
  outline.names[0] = "a\"]; evil [label=\"\n\\\x1b\xff";
  EXPECT_NE(PlanPicture(outline, {}).find(R"(s0 [label="task 7: a\"]; evil [label=\"?\\??, 1 node\n)"),
            std::string::npos)
      << PlanPicture(outline, {});
}

TEST(PlanPicture, OfManyStepsItHasNoEdges) {
  PlanOutline outline = Outline();
  outline.steps.resize(kMostStepsWithEdges);
  EXPECT_NE(PlanPicture(outline, {}).find("s0 -> s1;"), std::string::npos);
  outline.steps.emplace_back();
  const std::string text = PlanPicture(outline, {});
  EXPECT_EQ(text.find("->"), std::string::npos);
  EXPECT_NE(text.find("s4000 ["), std::string::npos);
}

}  // namespace
}  // namespace tally::server
