#include "server/daemon/fault_back_off.h"

#include <gtest/gtest.h>

namespace tally::server {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

class FaultBackOffTest : public testing::Test {
 protected:
  std::chrono::nanoseconds AfterAnother(const std::string& owner = "user 7") {
    faults_.OnFault(owner, clock_.Now());
    return faults_.PauseOf(owner, clock_.Now());
  }

  ManualClock clock_;
  FaultBackOff faults_;
};

TEST_F(FaultBackOffTest, OneFaultIsAnAccidentAndEachMoreDoublesThePause) {
  EXPECT_EQ(faults_.PauseOf("user 7", clock_.Now()), seconds(0));
  for (const int pause : {0, 1, 2, 4, 8, 16, 16, 16}) {
    EXPECT_EQ(AfterAnother(), seconds(pause));
    clock_.Advance(seconds(pause));
    EXPECT_EQ(faults_.PauseOf("user 7", clock_.Now()), seconds(0)) << "it is over";
  }
  EXPECT_EQ(faults_.InARow("user 7"), 8);
}

TEST_F(FaultBackOffTest, ThePauseIsCountedFromTheLastFault) {
  AfterAnother();
  AfterAnother();
  clock_.Advance(milliseconds(400));
  EXPECT_EQ(faults_.PauseOf("user 7", clock_.Now()), milliseconds(600));
}

TEST_F(FaultBackOffTest, NobodyElseWaits) {
  AfterAnother();
  AfterAnother();
  EXPECT_EQ(AfterAnother("user 8"), seconds(0));
}

TEST_F(FaultBackOffTest, AMinuteWithoutAFaultIsANewBeginning) {
  AfterAnother();
  clock_.Advance(FaultBackOff::kForgottenAfter - milliseconds(1));
  EXPECT_EQ(AfterAnother(), FaultBackOff::kFirstPause);
  clock_.Advance(FaultBackOff::kForgottenAfter);
  EXPECT_EQ(AfterAnother(), seconds(0));
}

TEST_F(FaultBackOffTest, ThousandsInARowAreNoLongerThanTheLongest) {
  for (int i = 0; i < 5000; ++i) AfterAnother();
  EXPECT_EQ(AfterAnother(), FaultBackOff::kLongestPause);
}

}  // namespace
}  // namespace tally::server
