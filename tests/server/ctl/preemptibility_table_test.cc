#include "server/ctl/preemptibility_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tally::cli {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

void Add(control::v1::Session* session, const char* by, const char* reason, uint64_t ms) {
  auto* covered = session->add_coverage();
  covered->set_by(by);
  covered->set_reason(reason);
  covered->set_gpu_time_ns(ms * 1'000'000);
}

TEST(PreemptibilityTable, ShowsSharesAndTheReasonsOfTheRestByTheirWeight) {
  control::v1::ListSessionsResponse response;
  response.add_sessions()->set_tenant("idle");
  auto* session = response.add_sessions();
  session->set_id(7);
  session->set_tenant("train");
  Add(session, "gated", "", 1500);
  Add(session, "time_slice", "cooperative", 100);
  Add(session, "time_slice", "not_tried_yet", 400);
  session->set_stops(4);
  session->set_stop_ns(100'000);
  const std::string text = PreemptibilityTable(response);
  EXPECT_THAT(text, HasSubstr("2.000"));
  EXPECT_THAT(text, HasSubstr("75.0 %"));
  EXPECT_THAT(text, HasSubstr("25.0 %"));
  EXPECT_THAT(text, HasSubstr("not tried yet 20.0 %, cooperative 5.0 %"));
  EXPECT_THAT(text, HasSubstr("25.0 "));  // microseconds each
  EXPECT_THAT(text, Not(HasSubstr("idle")));
}

TEST(PreemptibilityTable, IsEmptyIfNothingIsCounted) {
  control::v1::ListSessionsResponse response;
  response.add_sessions()->set_tenant("idle");
  EXPECT_EQ(PreemptibilityTable(response), "");
}

}  // namespace
}  // namespace tally::cli
