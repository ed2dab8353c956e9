#include "server/device-plugin/registration_pace.h"

#include <gtest/gtest.h>

namespace tally::device_plugin {
namespace {

using std::chrono::seconds;

constexpr RegistrationPace::Time kStart{seconds(1000)};

TEST(RegistrationPaceTest, TheFirstTimeIsAtOnce) {
  RegistrationPace pace;
  EXPECT_TRUE(pace.MayTry(kStart));
}

TEST(RegistrationPaceTest, PausesDoubleUpToTheLongest) {
  RegistrationPace pace;
  auto now = kStart;
  for (const int expected : {1, 2, 4, 8, 16, 30, 30}) {
    ASSERT_TRUE(pace.MayTry(now));
    pace.OnTry(now);
    EXPECT_EQ(pace.pause(), seconds(expected));
    EXPECT_FALSE(pace.MayTry(now + pace.pause() - std::chrono::nanoseconds(1)));
    now += pace.pause();
  }
}

TEST(RegistrationPaceTest, AKubeletThatStaysIsForgiven) {
  RegistrationPace pace;
  auto now = kStart;
  for (int i = 0; i < 6; ++i, now += pace.pause()) pace.OnTry(now);
  now += 2 * RegistrationPace::kLongestPause;
  pace.OnTry(now);
  EXPECT_EQ(pace.pause(), RegistrationPace::kFirstPause);
}

}  // namespace
}  // namespace tally::device_plugin
