#include "base/log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace tally {
namespace {

std::string Logged(std::string_view text) {
  testing::internal::CaptureStderr();
  LogLine(LogLevel::kWarning, text);
  return testing::internal::GetCapturedStderr();
}

// A client names its kernels as it likes. None of them is a line of its own, or tells a terminal what to do.
TEST(Log, OneMessageIsOneLineWhateverAClientCallsThings) {
  EXPECT_THAT(Logged("kernel a\ntallyd[1] W all is well\x1b[2J\r\x7f\t."),
              testing::EndsWith(" W kernel a?tallyd[1] W all is well?[2J???.\n"));
  EXPECT_THAT(Logged("grüße"), testing::EndsWith(" W grüße\n"));
  EXPECT_THAT(Logged(""), testing::EndsWith(" W \n"));
}

}  // namespace
}  // namespace tally
