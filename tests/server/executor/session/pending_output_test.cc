#include "server/executor/session/pending_output.h"

#include <gtest/gtest.h>

namespace tally::server {
namespace {

constexpr HeldLimits kLimits = {0, 0, 0, 10};

TEST(PendingOutput, IsBoundedAndSaysWhatIsMissing) {
  HeldByUsers users;
  HeldAccount account(kLimits, kLimits, users.Of(1));
  PendingOutput output(account);
  EXPECT_TRUE(output.empty());
  output.Append("12345");
  output.Append("67890");
  for (int i = 0; i < 1000; ++i) output.Append("x");
  EXPECT_EQ(output.Take(7), "1234567");
  output.Append("again");
  const std::string rest = output.Take(1000);
  EXPECT_TRUE(rest.starts_with("890again[tally: more device output was dropped")) << rest;
  EXPECT_EQ(rest.find("[tally", 10), std::string::npos) << "said once";
  EXPECT_TRUE(output.empty());
  output.Append("0123456789");
  EXPECT_EQ(output.Take(1000), "0123456789") << "what was fetched may be held again";
}

}  // namespace
}  // namespace tally::server
