#include "server/executor/issue/forced_form.h"

#include <gtest/gtest.h>

#include <cstdlib>

namespace tally::server {
namespace {

using scheduler::LaunchCandidate;
using scheduler::LaunchForm;

TEST(ForcedForm, NamesAFormAndPerhapsItsDegree) {
  EXPECT_EQ(ForcedForm::Parse("original")->CandidateOn(132), LaunchCandidate{});
  EXPECT_EQ(ForcedForm::Parse("slices:12")->CandidateOn(132), (LaunchCandidate{LaunchForm::kSlices, 12}));
  EXPECT_EQ(ForcedForm::Parse("workers")->CandidateOn(132), (LaunchCandidate{LaunchForm::kPersistentBlocks, 132}));
  EXPECT_EQ(ForcedForm::Parse("workers:4")->CandidateOn(132), (LaunchCandidate{LaunchForm::kPersistentBlocks, 528}));
}

TEST(ForcedForm, RefusesWhatIsNone) {
  for (const char* text : {"", "slice", "slices:", "slices:0", "slices:x", "slices:3x", "workers:-1", "workers:70000",
                           "original:2", "slices:99999999999999999999"}) {
    const auto parsed = ForcedForm::Parse(text);
    ASSERT_FALSE(parsed) << text;
    EXPECT_NE(parsed.error().message().find("slices[:DEGREE]"), std::string::npos) << text;
  }
}

TEST(ForcedForm, NonsenseInTheEnvironmentForcesNothing) {
  ::setenv("TALLY_FORCE_FORM", "workers:2", 1);
  EXPECT_TRUE(ForcedForm::OfEnvironment());
  ::setenv("TALLY_FORCE_FORM", "fast", 1);
  EXPECT_FALSE(ForcedForm::OfEnvironment());
  ::unsetenv("TALLY_FORCE_FORM");
  EXPECT_FALSE(ForcedForm::OfEnvironment());
}

}  // namespace
}  // namespace tally::server
