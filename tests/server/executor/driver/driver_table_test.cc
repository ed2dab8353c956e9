#include "server/executor/driver/driver_table.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "server/executor/driver/driver_libraries.h"

namespace tally::server {
namespace {

class DriverTableTest : public ::testing::Test {
 protected:
  std::string Write(const std::string& name, const std::string& text) {
    const std::string path = ::testing::TempDir() + name;
    std::ofstream(path) << text;
    return path;
  }
};

TEST_F(DriverTableTest, SaysWhatWasTriedWhenThereIsNoDriver) {
  DriverLibraries libraries;
  libraries.cuda_path = "/nowhere/libcuda.so.1";
  libraries.sim_path = "/nowhere/libtally-sim-driver.so";
  const auto driver = LoadDriver(libraries);
  ASSERT_FALSE(driver);
  EXPECT_EQ(driver.error().code(), StatusCode::kUnavailable);
  EXPECT_NE(driver.error().message().find("/nowhere/libcuda.so.1"), std::string::npos);
  EXPECT_NE(driver.error().message().find("/nowhere/libtally-sim-driver.so"), std::string::npos);
}

TEST_F(DriverTableTest, NeverTakesTheShimForTheDriver) {
  DriverLibraries libraries;
  libraries.choice = control::DriverChoice::kCuda;
  libraries.cuda_path = Write("shim.so", std::string("\x7f"
                                                     "ELF...TALLY_SOCKET...",
                                                     20) +
                                             "TALLY_SOCKET");
  const auto driver = LoadDriver(libraries);
  ASSERT_FALSE(driver);
  EXPECT_NE(driver.error().message().find("Tally's client library"), std::string::npos) << driver.error().message();
}

TEST_F(DriverTableTest, ALibraryWithoutDriverFunctionsIsRefused) {
  DriverLibraries libraries;
  libraries.choice = control::DriverChoice::kSim;
  libraries.sim_path = "libm.so.6";
  const auto driver = LoadDriver(libraries);
  ASSERT_FALSE(driver);
  EXPECT_NE(driver.error().message().find("lacks basic driver functions"), std::string::npos)
      << driver.error().message();
}

}  // namespace
}  // namespace tally::server
