// The control service under requests that tallyctl never makes: random fields, random bytes, and a connection that does
// not speak gRPC. The desk sees only what is in range, and the next honest call is answered.
//
// Here a few thousand; `tools/fuzz control SECONDS` goes on from TALLY_FUZZ_SEED for TALLY_FUZZ_SECONDS.
#include <grpcpp/create_channel.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <random>

#include "base/unique_fd.h"
#include "proto/control/control.grpc.pb.h"
#include "scheduler/tuning.h"
#include "server/daemon/rpc/control_service.h"
#include "server/daemon/rpc/rpc_server.h"
#include "tests/support/temporary_directory.h"

namespace tally::server {
namespace {

namespace v1 = control::v1;

uint64_t FromEnvironment(const char* name, uint64_t otherwise) {
  const char* text = std::getenv(name);
  return text != nullptr ? std::strtoull(text, nullptr, 10) : otherwise;
}

class StrictDesk final : public ControlDesk {
 public:
  Result<Overview> GetOverview() override { return Overview{}; }
  Status SetPriority(uint64_t, const control::ShareChange& change) override {
    ++num_changes;
    EXPECT_TRUE(!change.weight || (*change.weight >= 1 && *change.weight <= 10'000));
    EXPECT_TRUE(!change.level || *change.level < 8);
    EXPECT_LE(static_cast<int>(change.priority_class), 2);
    EXPECT_TRUE(!change.turnaround || change.turnaround->count() == 0 || scheduler::IsTurnaround(*change.turnaround));
    return OkStatus();
  }
  Result<Listed<KernelRow>> GetKernels() override { return Listed<KernelRow>{}; }
  Result<Listed<control::WindowShapeFigures>> GetWindowShapes() override {
    return Listed<control::WindowShapeFigures>{};
  }
  Result<Listed<control::GraphFigures>> GetGraphs() override { return Listed<control::GraphFigures>{}; }
  Result<std::string> DrawGraph(uint64_t, uint32_t) override { return std::string(); }
  Result<Recording> Trace(std::chrono::nanoseconds, std::optional<uint32_t>) override { return Recording{}; }
  Status SetTurnaroundThreshold(std::chrono::nanoseconds threshold) override {
    ++num_changes;
    EXPECT_TRUE(scheduler::IsTurnaround(threshold)) << threshold.count();
    return OkStatus();
  }
  // The real one checks it in the same way.
  Result<GrantRow> CreateGrant(const GrantSpec& spec) override {
    const Status checked = CheckGrant(spec);
    EXPECT_LT(checked.message().size(), 600u);
    if (!checked.ok()) return std::unexpected(checked);
    ++num_grants;
    return GrantRow{{1, spec, false}, "/s", 0};
  }
  Status LabelGrant(const std::string&, const GrantLabels&) override { return OkStatus(); }
  Status RevokeGrant(const std::string&) override { return OkStatus(); }
  Result<std::vector<GrantRow>> GetGrants() override { return std::vector<GrantRow>{}; }
  DaemonFacts facts() const override { return {"/s", "sim", {}, {}, {}}; }

  uint64_t num_changes = 0;
  uint64_t num_grants = 0;
};

class ControlFuzzTest : public ::testing::Test {
 protected:
  // A request of random fields: what a client of another version may send, unknown fields included.
  template <typename Request>
  Request Random(std::mt19937_64& random) {
    Request request;
    if (random() % 4 == 0) {
      std::string bytes(random() % 40, '\0');
      for (char& byte : bytes) byte = static_cast<char>(random());
      (void)request.ParseFromString(bytes);  // what was read before the mistake counts
      return request;
    }
    const auto number = [&]() -> uint64_t {
      switch (random() % 4) {
        case 0:
          return random();
        case 1:
          return UINT64_MAX >> (random() % 64);
        case 2:
          return random() % 16;
        default:
          return uint64_t{1} << (random() % 64);
      }
    };
    std::string bytes;
    for (uint64_t i = 0, count = random() % 5; i < count; ++i) {
      const auto put = [&](uint64_t value) {
        for (; value >= 128; value >>= 7) bytes += static_cast<char>(value | 128);
        bytes += static_cast<char>(value);
      };
      put((1 + random() % 6) << 3);  // a varint field
      put(number());
    }
    EXPECT_TRUE(request.ParseFromString(bytes));
    return request;
  }

  template <typename Request, typename Response>
  void Ask(std::mt19937_64& random,
           grpc::Status (ControlService::*method)(grpc::ServerContext*, const Request*, Response*)) {
    const Request request = Random<Request>(random);
    Response response;
    const grpc::Status status = (service_.*method)(nullptr, &request, &response);
    ++answers_[static_cast<int>(status.error_code())];
    EXPECT_TRUE(status.ok() || !status.error_message().empty());
  }

  void AskForGrant(std::mt19937_64& random) {
    v1::CreateGrantRequest request;
    *request.mutable_grant() = Random<v1::Grant>(random);
    if (random() % 2 == 0) request.mutable_grant()->set_tenant("a");
    v1::CreateGrantResponse response;
    const grpc::Status status = service_.CreateGrant(nullptr, &request, &response);
    ++answers_[static_cast<int>(status.error_code())];
    EXPECT_TRUE(status.ok() || !status.error_message().empty());
  }

  StrictDesk desk_;
  ControlService service_{desk_};
  std::map<int, uint64_t> answers_;
};

TEST_F(ControlFuzzTest, OnlyWhatIsInRangeReachesTheDesk) {
  const auto seconds = std::chrono::seconds(FromEnvironment("TALLY_FUZZ_SECONDS", 0));
  const uint64_t first = FromEnvironment("TALLY_FUZZ_SEED", 0);
  const auto until = std::chrono::steady_clock::now() + seconds;
  constexpr uint64_t kSeeds = 10'000;
  uint64_t seed = first;
  for (; (seed < first + kSeeds || std::chrono::steady_clock::now() < until) && !HasFailure(); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937_64 random(seed);
    Ask(random, &ControlService::SetPriority);
    Ask(random, &ControlService::SetTurnaround);
    Ask(random, &ControlService::ListSessions);
    Ask(random, &ControlService::ListExecutors);
    Ask(random, &ControlService::ListKernels);
    Ask(random, &ControlService::Version);
    Ask(random, &ControlService::ListGrants);
    Ask(random, &ControlService::LabelGrant);
    Ask(random, &ControlService::RevokeGrant);
    AskForGrant(random);
  }
  std::printf("%lu requests, %lu changes, %zu kinds of answers\n", (seed - first) * 9, desk_.num_changes,
              answers_.size());
  EXPECT_GT(desk_.num_changes, 0u);
  EXPECT_GT(desk_.num_grants, 0u);
}

TEST_F(ControlFuzzTest, NoiseOnTheSocketHarmsNobody) {
  const TemporaryDirectory directory;
  const std::string path = directory.path() + "/control.sock";
  const auto server = RpcServer::Start(path, desk_);
  ASSERT_TRUE(server);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::strncpy(address.sun_path, path.c_str(), sizeof(address.sun_path) - 1);
  for (uint64_t seed = 0; seed < 200; ++seed) {
    std::mt19937_64 random(seed);
    const UniqueFd connection(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    ASSERT_EQ(::connect(connection.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
    std::string noise = random() % 2 == 0 ? "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" : "";
    for (uint64_t i = 0, count = random() % 200; i < count; ++i)
      noise += static_cast<char>(random() % 3 == 0 ? random() : random() % 10);
    (void)!::send(connection.get(), noise.data(), noise.size(), MSG_NOSIGNAL);
  }
  const auto stub = v1::Control::NewStub(grpc::CreateChannel("unix:" + path, grpc::InsecureChannelCredentials()));
  grpc::ClientContext context;
  context.set_wait_for_ready(true);
  v1::VersionResponse response;
  const grpc::Status status = stub->Version(&context, v1::VersionRequest(), &response);
  EXPECT_TRUE(status.ok()) << status.error_message();
  EXPECT_EQ(response.driver(), "sim");
}

}  // namespace
}  // namespace tally::server
