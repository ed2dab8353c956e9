#include "server/ctl/trace_events.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

namespace tally::cli {
namespace {

namespace v1 = control::v1;
using Json = nlohmann::json;

class TraceEventsTest : public ::testing::Test {
 protected:
  TraceEventsTest() {
    v1::TracedExecutor* executor = first_.add_executors();
    executor->set_pid(77);
    executor->set_domain("best-effort:1000");
    executor->set_began_ns(1'000'000);
    executor->set_ended_ns(9'000'000);
  }
  v1::Session* AddSession(uint64_t id, const std::string& tenant) {
    v1::Session* session = first_.add_sessions();
    session->set_id(id);
    session->set_tenant(tenant);
    session->set_priority_class(v1::PRIORITY_CLASS_BEST_EFFORT);
    return session;
  }
  static v1::TraceEvent Run(const std::string& name, uint64_t begin_ns, uint64_t end_ns) {
    v1::TraceEvent event;
    event.set_kind(v1::TraceEvent::KIND_RUN);
    event.set_session_id(1);
    event.set_name(name);
    event.set_operations(1);
    event.set_asked_ns(1'500'000);
    event.set_issued_ns(1'600'000);
    event.set_begin_ns(begin_ns);
    event.set_end_ns(end_ns);
    return event;
  }
  Json Finish(const std::vector<v1::TraceEvent>& events) {
    std::string text;
    TraceEvents written([&](std::string_view part) { text += part; });
    written.Add(first_);
    v1::TraceChunk more;
    for (const v1::TraceEvent& event : events) *more.add_events() = event;
    written.Add(more);
    written.Finish();
    EXPECT_TRUE(std::ranges::all_of(text, [](unsigned char letter) { return letter < 0x7F; }));
    return Json::parse(text);
  }
  static Json Slices(const Json& trace) {
    Json slices = Json::array();
    for (const Json& event : trace["traceEvents"]) {
      if (event["ph"] == "X") slices.push_back(event);
    }
    return slices;
  }

  v1::TraceChunk first_;
};

TEST_F(TraceEventsTest, NamesOfAHostileClientStayNames) {
  const std::string name = "k\"},{\"ph\":\"X\",\"name\":\"</script>\\\n\x01\xff\xc3";
  AddSession(1, "t\"\\\n{}");
  const Json trace = Finish({Run(name, 2'000'000, 3'000'000)});
  const Json slices = Slices(trace);
  ASSERT_EQ(slices.size(), 2u);  // the launch and the GPU: nothing was added
  const std::string read = slices[1]["name"];
  EXPECT_TRUE(read.starts_with("k\"},{\"ph\":\"X\",\"name\":\"</script>\\\n\x01")) << read;
}

TEST_F(TraceEventsTest, ARunIsALaunchAnArrowAndASliceOnTheGpu) {
  AddSession(1, "training");
  const Json trace = Finish({Run("k", 2'000'000, 3'000'500)});
  const Json slices = Slices(trace);
  EXPECT_EQ(slices[0]["ts"], 500);
  EXPECT_EQ(slices[0]["dur"], 100);
  EXPECT_EQ(slices[1]["ts"], 1000);
  EXPECT_EQ(slices[1]["dur"], 1000.5);
  EXPECT_NE(slices[0]["tid"], slices[1]["tid"]);
  Json arrow = Json::object();
  for (const Json& event : trace["traceEvents"]) {
    if (event["ph"] == "s" || event["ph"] == "f") arrow[std::string(event["ph"])] = event;
  }
  EXPECT_EQ(arrow["s"]["ts"], 500);
  EXPECT_EQ(arrow["f"]["ts"], 1000);
  EXPECT_EQ(arrow["f"]["bp"], "e");
  EXPECT_EQ(arrow["s"]["tid"], slices[0]["tid"]);
  EXPECT_EQ(arrow["f"]["tid"], slices[1]["tid"]);
}

TEST_F(TraceEventsTest, WorkOfAStreamDoesNotOverlap) {
  const Json slices = Slices(Finish({Run("a", 2'000'000, 3'000'000), Run("b", 2'999'000, 4'000'000)}));
  EXPECT_EQ(slices[3]["ts"], 2000);
  EXPECT_EQ(slices[3]["dur"], 1000);
}

TEST_F(TraceEventsTest, WhatHasNotEndedGoesOnToTheEndAndWhatHasNotBegunIsNotThere) {
  const Json slices = Slices(Finish({Run("a", 2'000'000, 0), Run("b", 0, 0)}));
  ASSERT_EQ(slices.size(), 3u);
  EXPECT_EQ(slices[1]["name"], "a (goes on)");
  EXPECT_EQ(slices[1]["dur"], 7000);
}

TEST_F(TraceEventsTest, LaunchesThatShareARecordSayHowManyTheyAre) {
  v1::TraceEvent run = Run("k", 2'000'000, 3'000'000);
  run.set_operations(12);
  const Json slices = Slices(Finish({run}));
  EXPECT_EQ(slices[1]["name"], "k and 11 more");
  EXPECT_EQ(slices[1]["args"]["operations"], 12);
}

TEST_F(TraceEventsTest, WaitsSayWhy) {
  v1::TraceEvent wait;
  wait.set_kind(v1::TraceEvent::KIND_WAIT);
  wait.set_session_id(1);
  wait.set_begin_ns(500'000);  // before the recording: a clock that the executor had read earlier
  wait.set_end_ns(2'000'000);
  wait.set_reason(v1::TraceEvent::REASON_HIGH_PRIORITY);
  const Json slices = Slices(Finish({wait}));
  EXPECT_EQ(slices[0]["name"], "held: high-priority work");
  EXPECT_EQ(slices[0]["ts"], -500);
}

TEST_F(TraceEventsTest, WhatIsMissingIsSaid) {
  first_.mutable_executors(0)->set_dropped(42);
  v1::TracedExecutor* silent = first_.add_executors();
  silent->set_pid(78);
  silent->set_domain("high:1000");
  silent->set_problem("it did not record");
  const Json trace = Finish({});
  EXPECT_EQ(trace["otherData"]["operations not recorded"], "42");
  EXPECT_EQ(trace["otherData"]["not recorded"], "executor 78 (high:1000): it did not record");
  bool is_seen = false;
  for (const Json& event : trace["traceEvents"]) is_seen |= event["name"] == "42 operations were not recorded";
  EXPECT_TRUE(is_seen);
}

}  // namespace
}  // namespace tally::cli
