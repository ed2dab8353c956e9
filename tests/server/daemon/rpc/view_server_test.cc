// Users of the read-only socket who want more than their part, and names that are no text.
#include "server/daemon/rpc/view_server.h"

#include <grpcpp/create_channel.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <future>

#include "base/mapped_region.h"
#include "proto/control/control.grpc.pb.h"
#include "proto/control/trace_abi.h"
#include "server/daemon/rpc/rpc_server.h"
#include "tests/support/temporary_directory.h"

namespace tally::server {
namespace {

namespace v1 = control::v1;

// No character of UTF-8; then what moves a terminal's cursor.
constexpr const char* kNoText = "kern\xff\xc3\x1b[2Jel";

// One session of this user's, which has launched a kernel again and again.
class BusyDesk final : public ControlDesk {
 public:
  Result<Overview> GetOverview() override {
    Overview overview;
    SessionRow& row = overview.sessions.emplace_back();
    row.record.identity.session_id = 1;
    row.record.identity.uid = ::geteuid();
    row.executor_pid = 7;
    return overview;
  }
  Status SetPriority(uint64_t, const control::ShareChange&) override { return OkStatus(); }
  Result<Listed<KernelRow>> GetKernels() override {
    KernelRow row;
    std::strcpy(row.report.kernel, kNoText);
    return Listed<KernelRow>{{row}};
  }
  Result<Listed<control::WindowShapeFigures>> GetWindowShapes() override {
    return Listed<control::WindowShapeFigures>{};
  }
  // One of this user's session, one of another's.
  Result<Listed<control::GraphFigures>> GetGraphs() override {
    std::vector<control::GraphFigures> graphs(2);
    graphs[0].session_id = 1;
    graphs[1].session_id = 2;
    graphs[0].number = graphs[1].number = 3;
    graphs[0].reason = control::WholeReason::kShort;
    return Listed<control::GraphFigures>{graphs, {7, 9}};
  }
  Result<std::string> DrawGraph(uint64_t, uint32_t number) override { return number == 3 ? "digraph" : ""; }
  Result<Recording> Trace(std::chrono::nanoseconds, std::optional<uint32_t>) override {
    ++num_traces;
    auto file = CreateSealedMemfd("trace", control::kTraceFileBytes, 4096);
    control::TraceFileHeader header{control::kTraceMagic, 1, 2, 0, 0, num_events, 1};
    std::vector<control::TraceEvent> events(num_events);
    for (control::TraceEvent& event : events) {
      event.session_id = event.begin_ns = 1;
      event.end_ns = 2;
      event.kind = static_cast<uint16_t>(control::TraceKind::kRun);
    }
    char name[control::kTraceNameBytes] = {};
    std::strcpy(name, kNoText);
    const size_t events_bytes = events.size() * sizeof(control::TraceEvent);
    EXPECT_GT(::pwrite(file->get(), &header, sizeof(header), 0), 0);
    EXPECT_GT(::pwrite(file->get(), events.data(), events_bytes, sizeof(header)), 0);
    EXPECT_GT(::pwrite(file->get(), name, sizeof(name), static_cast<off_t>(sizeof(header) + events_bytes)), 0);
    Recording recording;
    recording.executors.resize(1);
    recording.executors.front().executor_pid = 7;
    recording.executors.front().file = std::move(*file);
    return recording;
  }
  Status SetTurnaroundThreshold(std::chrono::nanoseconds) override { return OkStatus(); }
  Result<GrantRow> CreateGrant(const GrantSpec& spec) override { return GrantRow{{7, spec, false}, "/s", 0}; }
  Status LabelGrant(const std::string&, const GrantLabels&) override { return OkStatus(); }
  Status RevokeGrant(const std::string&) override { return OkStatus(); }
  Result<std::vector<GrantRow>> GetGrants() override { return std::vector<GrantRow>{}; }
  DaemonFacts facts() const override { return {"/s", "sim", {}, {}, {}}; }

  uint32_t num_events = 1;
  std::atomic<int> num_traces{0};
};

class ViewServerTest : public ::testing::Test {
 protected:
  std::unique_ptr<v1::Control::Stub> StubOf(const std::string& path) {
    return v1::Control::NewStub(grpc::CreateChannel("unix:" + path, grpc::InsecureChannelCredentials()));
  }
  struct Reading {
    grpc::ClientContext context;
    std::unique_ptr<grpc::ClientReader<v1::TraceChunk>> reader;
  };
  std::unique_ptr<Reading> Begin(v1::Control::Stub& stub) {
    v1::TraceRequest request;
    request.set_duration_ns(1'000'000);
    auto reading = std::make_unique<Reading>();
    reading->reader = stub.Trace(&reading->context, request);
    return reading;
  }

  TemporaryDirectory directory_;
  BusyDesk desk_;
};

TEST_F(ViewServerTest, NamesThatAreNoTextDoNotSpoilATrace) {
  const std::string path = directory_.path() + "/view.sock";
  const auto server = ViewServer::Start(path, desk_, /*shows_totals=*/false);
  ASSERT_TRUE(server);
  const auto stub = StubOf(path);
  const auto reading = Begin(*stub);
  v1::TraceChunk chunk;
  std::string name;
  while (reading->reader->Read(&chunk)) {
    for (const v1::TraceEvent& event : chunk.events()) name = event.name();
  }
  const grpc::Status status = reading->reader->Finish();
  EXPECT_TRUE(status.ok()) << status.error_message();
  EXPECT_EQ(name, "kern???[2Jel");
}

TEST_F(ViewServerTest, NamesThatAreNoTextDoNotSpoilTheListOfKernels) {
  const std::string path = directory_.path() + "/control.sock";
  const auto server = RpcServer::Start(path, desk_);
  ASSERT_TRUE(server);
  const auto stub = StubOf(path);
  grpc::ClientContext context;
  v1::ListKernelsResponse response;
  const grpc::Status status = stub->ListKernels(&context, {}, &response);
  ASSERT_TRUE(status.ok()) << status.error_message();
  EXPECT_EQ(response.kernels(0).name(), "kern???[2Jel");
}

// Neither what graphs others have, nor whether they have some.
TEST_F(ViewServerTest, AUserSeesHisOwnGraphs) {
  const std::string path = directory_.path() + "/view.sock", all_path = directory_.path() + "/control.sock";
  const auto server = ViewServer::Start(path, desk_, /*shows_totals=*/false);
  const auto all_server = RpcServer::Start(all_path, desk_);
  ASSERT_TRUE(server && all_server);
  const auto stub = StubOf(path), all_stub = StubOf(all_path);
  const auto list = [](v1::Control::Stub& from) {
    grpc::ClientContext context;
    v1::ListGraphsResponse response;
    EXPECT_TRUE(from.ListGraphs(&context, {}, &response).ok());
    return response;
  };
  const auto draw = [](v1::Control::Stub& from, uint64_t session, uint32_t number) {
    grpc::ClientContext context;
    v1::DrawGraphRequest request;
    request.set_session_id(session);
    request.set_number(number);
    v1::DrawGraphResponse response;
    const grpc::Status status = from.DrawGraph(&context, request, &response);
    return status.ok() ? response.dot() : status.error_message();
  };
  const auto own = list(*stub);
  ASSERT_EQ(own.graphs_size(), 1);
  EXPECT_EQ(own.graphs(0).session_id(), 1u);
  EXPECT_EQ(own.graphs(0).why_whole(), "short");
  EXPECT_EQ(own.late_executors(), 1u) << "the one that has a session of this user";
  EXPECT_EQ(list(*all_stub).graphs_size(), 2);
  EXPECT_EQ(list(*all_stub).late_executors(), 2u);
  EXPECT_EQ(draw(*stub, 1, 3), "digraph");
  EXPECT_EQ(draw(*all_stub, 2, 3), "digraph");
  const std::string none = draw(*stub, 1, 4);
  EXPECT_NE(none.find("no such graph"), std::string::npos) << none;
  EXPECT_EQ(draw(*stub, 2, 3), none);
  EXPECT_EQ(draw(*all_stub, 2, 4), none);
}

// What was recorded is in tallyd's memory until it is read.
TEST_F(ViewServerTest, WhoDoesNotReadHisTraceGetsNoOther) {
  desk_.num_events = control::kMostTraceEvents;
  const std::string path = directory_.path() + "/view.sock";
  auto server = ViewServer::Start(path, desk_, /*shows_totals=*/false);
  ASSERT_TRUE(server);
  const auto stub = StubOf(path);
  const auto unread = Begin(*stub);
  v1::TraceChunk chunk;
  ASSERT_TRUE(unread->reader->Read(&chunk));
  for (int i = 0; i < 3; ++i) {
    const auto another = Begin(*stub);
    const bool is_served = another->reader->Read(&chunk);
    EXPECT_FALSE(is_served);
    if (is_served) another->context.TryCancel();
    EXPECT_EQ(another->reader->Finish().error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  }
  EXPECT_EQ(desk_.num_traces, 1);
  unread->context.TryCancel();
  EXPECT_FALSE(unread->reader->Finish().ok());
  desk_.num_events = 1;
  for (bool is_served = false; !is_served;) {
    const auto again = Begin(*stub);
    is_served = again->reader->Read(&chunk);
    while (again->reader->Read(&chunk)) continue;
    (void)again->reader->Finish();
  }
}

}  // namespace
}  // namespace tally::server
