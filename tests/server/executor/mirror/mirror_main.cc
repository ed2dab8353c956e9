// The program of the tests of mirrors: the tests, and the processes that they start.
#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>

#include "server/executor/mirror/mirror_process.h"
#include "tests/server/executor/mirror/lying_mirror.h"

int main(int argc, char** argv) {
  using namespace tally::server;
  if (IsMirror(argc, argv)) {
    if (const char* lie = std::getenv(kLieVariable)) return RunLyingMirror(std::atoi(lie));
    return RunMirror(argc, argv, [](std::chrono::microseconds) {});
  }
  // Before the driver is initialised, here and in the mirrors: what needs an edge and has none fails sooner or later.
  ::setenv("TALLY_SIM_DEVICES", "8", 0);
  ::setenv("TALLY_SIM_WORKERS", "2", 0);
  ::setenv("TALLY_SIM_SHUFFLE", "27", 0);
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
