#include "server/ctl/session_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

#include "server/ctl/output_width.h"

namespace tally::cli {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class SessionTableTest : public ::testing::Test {
 protected:
  SessionTableTest() {
    for (const uint64_t id : {7, 123456}) {
      auto* session = sessions_.add_sessions();
      session->set_id(id);
      session->set_tenant("a-training-with-a-long-name");
      session->set_pid(4'190'000);
      session->set_uid(65534);
      session->set_priority_class(control::v1::PRIORITY_CLASS_BEST_EFFORT);
      session->set_weight(10000);
      session->set_domain("best-effort:65534");
      session->set_executor_pid(4'180'000);
      session->set_age_ns(400'000'000'000'000);
      session->set_kernel_launches(123'456'789);
      session->set_held_launches(1'234'567);
      session->set_device_memory_bytes(75ull << 30);
      auto& figures = *session->mutable_figures();
      figures["hints_announced"] = 40;
      figures["hints_hit"] = 3;
      figures["hints_false"] = 1;
      figures["hints_late"] = 2;
    }
  }

  std::string At(size_t width) { return SessionTable(sessions_, {}, width); }

  control::v1::ListSessionsResponse sessions_;
};

TEST_F(SessionTableTest, FitsEveryWidth) {
  for (size_t width = 20; width < 250; ++width) {
    std::istringstream lines(At(width));
    for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), width) << line;
  }
}

TEST_F(SessionTableTest, HasWhatPeopleLookForAt80Columns) {
  const std::string text = At(80);
  for (const char* header : {"SESSION", "TENANT", "CLASS", "SHARE", "GPU", "LAUNCHES", "MEMORY"})
    EXPECT_THAT(text, HasSubstr(header));
  EXPECT_THAT(text, HasSubstr("75.0 GiB"));
  EXPECT_THAT(text, Not(HasSubstr("PINNED")));
}

TEST_F(SessionTableTest, HasEverythingWhereAnyWidthWillDo) {
  const std::string text = At(kAnyWidth);
  for (const char* words : {"PINNED", "REFUSED", "HINTS", "3/40, 1 false, 2 late", "a-training-with-a-long-name",
                            "best-effort:65534", "4180000"})
    EXPECT_THAT(text, HasSubstr(words));
}

TEST_F(SessionTableTest, HasWhatHoldingDoesOfSessionsThatHadGaps) {
  EXPECT_THAT(At(kAnyWidth), Not(HasSubstr("gaps")));
  auto& figures = *sessions_.mutable_sessions(0)->mutable_figures();
  figures["gaps_by_guard"] = 5;
  EXPECT_THAT(At(kAnyWidth), HasSubstr("no: 0 of 5 gaps, ? held, ? not"));
  figures["gaps_hit"] = 80;
  figures["gaps_late"] = 10;
  figures["gaps_by_rule"] = 7;
  figures["requests_gaps_held"] = 50;
  figures["requests_gaps_held_ns"] = 50 * 1'230'000;
  figures["requests_gaps_open"] = 20;
  figures["requests_gaps_open_ns"] = 20 * 4'000'000;
  figures["prefers_holding"] = 1;
  EXPECT_THAT(At(kAnyWidth), HasSubstr("yes: 90 of 102 gaps, 1.23 ms held, 4 ms not"));
}

TEST_F(SessionTableTest, HasTheGpusThatASessionHadWorkOn) {
  EXPECT_THAT(At(80), HasSubstr("10000  -  "));
  for (const uint32_t place : {0, 3}) sessions_.mutable_sessions(0)->add_busy()->set_place(place);
  EXPECT_THAT(At(80), HasSubstr("10000  0,3  "));
}

TEST_F(SessionTableTest, AStaleSessionIsMarkedInEveryWidth) {
  sessions_.mutable_sessions(0)->set_is_stale(true);
  EXPECT_THAT(At(30), HasSubstr("7?  a-traini"));
  EXPECT_THAT(At(200), HasSubstr("did not answer in time"));
}

TEST_F(SessionTableTest, SaysWhatMakesASession) {
  EXPECT_THAT(SessionTable({}, {}, 80), HasSubstr("no sessions: 'tally-run PROGRAM' makes one"));
}

}  // namespace
}  // namespace tally::cli
