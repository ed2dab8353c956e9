// The program of the tests with two processes: the tests, or with kPeerOption the second process.
#include <gtest/gtest.h>

#include <cstdlib>
#include <string_view>

#include "tests/sim-driver/api/peer_process.h"

int main(int argc, char** argv) {
  if (argc == 3 && std::string_view(argv[1]) == tally::sim_driver::kPeerOption) {
    tally::sim_driver::ServePeer(std::atoi(argv[2]));
    return 0;
  }
  // Before the driver is initialised, here and in the second process.
  ::setenv("TALLY_SIM_DEVICES", "2", 1);
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
