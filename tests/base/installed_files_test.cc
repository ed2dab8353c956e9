#include "base/installed_files.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>

namespace tally {
namespace {

TEST(InstalledFiles, ProgramsAreWhereThisOneIs) {
  EXPECT_EQ(ProgramDirectory(), std::filesystem::read_symlink("/proc/self/exe").parent_path());
}

TEST(InstalledFiles, TheClientLibraryIsBesideThemUnlessItIsNamed) {
  ::unsetenv("TALLY_CLIENT_DIR");
  const std::filesystem::path beside = std::filesystem::path(ProgramDirectory()).parent_path() / "lib/tally/client";
  EXPECT_EQ(ClientDirectory(), beside);
  ::setenv("TALLY_CLIENT_DIR", "", 1);
  EXPECT_EQ(ClientDirectory(), beside);
  ::setenv("TALLY_CLIENT_DIR", "/elsewhere", 1);
  EXPECT_EQ(ClientDirectory(), "/elsewhere");
  ::unsetenv("TALLY_CLIENT_DIR");
}

}  // namespace
}  // namespace tally
