// Executors that connect, go away and come back: this process plays the one that an earlier tallyd started. What the
// pool starts itself is a program that never says anything.
#include "server/daemon/executor_pool.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <fstream>
#include <future>
#include <initializer_list>
#include <map>
#include <memory>
#include <thread>

#include "base/unix_socket.h"
#include "proto/driver/generated/wire_ops.h"
#include "scheduler/launch.h"
#include "tests/support/temporary_directory.h"

namespace tally::server {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr uint32_t kUser = 7;
constexpr auto kLongEnough = std::chrono::seconds(20);

Domain BestEffortOf(uint32_t uid) { return {"best-effort", uid, shm::PriorityClass::kBestEffort, false}; }

control::SessionIdentity OfUser() {
  control::SessionIdentity identity{};
  identity.uid = kUser;
  return identity;
}

// The executor's end of a link, as proto/control/executor_link_abi.h has it.
class Peer {
 public:
  explicit Peer(const std::string& path) {
    auto socket = ConnectUnix(path);
    EXPECT_TRUE(socket);
    if (socket) socket_ = std::move(*socket);
  }

  void SayHello(uint32_t figures_hash = control::kSessionFiguresHash) {
    control::LinkHello hello{};
    hello.link_version = control::kLinkVersion;
    hello.api_table_hash = kApiTableHash;
    hello.figures_hash = figures_hash;
    hello.priority_class = static_cast<uint32_t>(shm::PriorityClass::kBestEffort);
    hello.owner_uid = kUser;
    hello.is_software = 1;
    BestEffortOf(kUser).name.copy(hello.domain_name, sizeof(hello.domain_name) - 1);
    Send(control::LinkKind::kHello, hello);
  }
  void Report(uint64_t session_id, uint64_t num_launches, uint64_t slo_latency_ns = 0, bool has_ended = false) {
    control::LinkSessionReport report{};
    report.identity.pid = ::getpid();
    report.identity.slo_latency_ns = slo_latency_ns;
    report.has_ended = has_ended ? 1 : 0;
    report.identity.session_id = session_id;
    report.identity.uid = kUser;
    report.identity.priority_class = static_cast<uint32_t>(shm::PriorityClass::kBestEffort);
    report.figures["kernel_launches"] = num_launches;
    Send(control::LinkKind::kSessionReport, report);
  }
  void FindLongBlocks(uint64_t session_id, const char* kernel = "wgrad") {
    control::LinkLongBlocks found{};
    found.session_id = session_id;
    found.left_ns = 2'940'000;
    std::strncpy(found.kernel, kernel, sizeof(found.kernel) - 1);
    Send(control::LinkKind::kLongBlocks, found);
  }
  void Fault() { Send(control::LinkKind::kFaulted, control::LinkFaulted{}); }
  void Leave() { Send(control::LinkKind::kLeaving, control::LinkSignal{}); }
  void Idle() { Send(control::LinkKind::kIdle, control::LinkSignal{}); }
  void EndReports() { Send(control::LinkKind::kReportEnd, control::LinkReportEnd{}); }
  // As one that has these sessions.
  void Introduce(std::initializer_list<uint64_t> sessions) {
    SayHello();
    for (const uint64_t id : sessions) Report(id, 0);
    EndReports();
  }
  // The id of the next session that it is given; 0: none came.
  uint64_t TakeSession() {
    for (;;) {
      const auto message = ReceiveMessage(socket_.get(), kLongEnough);
      if (!message) return 0;
      control::LinkAddSession add{};
      std::memcpy(&add, message->bytes.data(), std::min(sizeof(add), message->bytes.size()));
      num_tunings_ += static_cast<control::LinkKind>(add.header.kind) == control::LinkKind::kSetTuning ? 1 : 0;
      if (static_cast<control::LinkKind>(add.header.kind) == control::LinkKind::kAddSession) {
        return add.identity.session_id;
      }
    }
  }

  // Before it has said anything.
  bool IsTurnedAway() const {
    pollfd end{socket_.get(), POLLIN, 0};
    char byte = 0;
    return ::poll(&end, 1, 5000) == 1 && ::recv(socket_.get(), &byte, 1, 0) == 0;
  }

  // That came before what was taken last.
  int num_tunings() const { return num_tunings_; }

 private:
  template <typename Message>
  void Send(control::LinkKind kind, Message message) {
    message.header = {control::kLinkMagic, static_cast<uint32_t>(kind), 0};
    EXPECT_TRUE(SendMessage(socket_.get(), std::as_bytes(std::span(&message, 1))).ok());
  }

  UniqueFd socket_;
  int num_tunings_ = 0;
};

class ExecutorPoolTest : public testing::Test {
 protected:
  void SetUp() override {
    config_.executor_path = directory_ + "/silent";
    std::ofstream(config_.executor_path) << "#!/bin/sh\necho \"$@\" > " + directory_ + "/words-$$\nexec sleep 1000\n";
    ASSERT_EQ(::chmod(config_.executor_path.c_str(), 0755), 0);
    auto runtime_dir = RuntimeDir::Open(directory_, false);
    auto loop = EventLoop::Create();
    ASSERT_TRUE(runtime_dir && loop);
    runtime_dir_ = std::move(*runtime_dir);
    loop_ = std::move(*loop);
  }

  // With config_ as it then is; its loop does not run yet.
  void Listen() {
    auto spawner = ExecutorSpawner::Create(config_, DriverChoice::kSim, socket_path_);
    ASSERT_TRUE(spawner);
    pool_ = std::make_unique<ExecutorPool>(*loop_, *runtime_dir_, *spawner, config_);
    ASSERT_TRUE(pool_->Listen(socket_path_).ok());
  }
  void Run() {
    thread_ = std::thread([this] { loop_->Run(); });
  }

  void TearDown() override {
    if (thread_.joinable()) {
      loop_->Quit();
      thread_.join();
    }
    for (const auto& executor : pool_->executors()) {
      if (!executor->is_child) continue;
      ::kill(executor->pid, SIGKILL);
      ::waitpid(executor->pid, nullptr, 0);
    }
    ::prctl(PR_SET_NAME, "executor_pool");
  }

  template <typename F>
  auto OnLoop(F ask) {
    std::packaged_task<decltype(ask())()> task(ask);
    loop_->Post([&] { task(); });
    return task.get_future().get();
  }
  template <typename F>
  testing::AssertionResult Await(F condition) {
    const auto limit = std::chrono::steady_clock::now() + kLongEnough;
    while (!OnLoop(condition)) {
      if (std::chrono::steady_clock::now() > limit) return testing::AssertionFailure() << "not within 20 s";
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return testing::AssertionSuccess();
  }
  // On the loop's thread, or before it runs. Its answer comes into answers_.
  void Open(uint64_t session_id, uint32_t uid = kUser, uint64_t grant_id = 0,
            shm::PriorityClass priority_class = shm::PriorityClass::kBestEffort) {
    control::SessionIdentity identity{};
    identity.grant_id = grant_id;
    identity.session_id = session_id;
    identity.uid = uid;
    identity.weight = scheduler::kDefaultWeight;
    const bool is_high = priority_class == shm::PriorityClass::kHighPriority;
    const Domain domain = is_high ? Domain{"high", uid, priority_class} : BestEffortOf(uid);
    pool_->Open(domain, identity, UniqueFd(::open("/dev/null", O_RDWR | O_CLOEXEC)),
                [this, session_id](Status status) { answers_.emplace(session_id, std::move(status)); });
  }
  // This process asks for a session where classes share contexts. The domain that it gets.
  std::string OpenShared(uint64_t session_id, shm::PriorityClass priority_class = shm::PriorityClass::kBestEffort,
                         uint32_t uid = kUser) {
    control::SessionIdentity identity = OfUser();
    identity.session_id = session_id;
    identity.pid = ::getpid();
    identity.uid = uid;
    identity.priority_class = static_cast<uint32_t>(priority_class);
    pool_->Open(BestEffortOf(uid).Mixed(), identity, UniqueFd(::open("/dev/null", O_RDWR | O_CLOEXEC)),
                [this, session_id](Status status) { answers_.emplace(session_id, std::move(status)); });
    return DomainOf(session_id);
  }
  // Where it waits; empty: nowhere.
  std::string DomainOf(uint64_t session_id) {
    for (const auto& executor : pool_->executors()) {
      for (const auto& waiting : executor->waiting) {
        if (waiting.identity.session_id == session_id) return executor->domain.name;
      }
    }
    return "";
  }
  // This process is known for kernels of long blocks. The name of its own domain.
  std::string BeKnown() {
    config_.cache_directory = directory_ + "/cache";
    control::SessionIdentity identity = OfUser();
    identity.pid = ::getpid();
    const StartedProgram program = ProgramOf(identity).value();
    EXPECT_TRUE(LongBlocks(config_.cache_directory).Remember(program, "it was seen"));
    return program.DomainName();
  }

  // What the executor that was started last was told; it has only just been started.
  std::string WordsOfLast() {
    const std::string path = directory_ + "/words-" + std::to_string(pool_->executors().back()->pid);
    for (const auto limit = std::chrono::steady_clock::now() + kLongEnough; std::chrono::steady_clock::now() < limit;) {
      std::string words;
      if (std::getline(std::ifstream(path), words)) return words;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return "";
  }
  ExecutorState StateOfFirst() { return pool_->executors().front()->state; }

  // As an earlier tallyd leaves them that had started this process.
  void BeNoted() {
    std::ofstream(directory_ + "/executor-" + std::to_string(::getpid()));
    ::prctl(PR_SET_NAME, "tally-executor");
  }

  const TemporaryDirectory temporary_;
  const std::string directory_ = temporary_.path();
  const std::string socket_path_ = directory_ + "/executors.sock";
  DaemonConfig config_;
  std::unique_ptr<RuntimeDir> runtime_dir_;
  std::unique_ptr<EventLoop> loop_;
  std::unique_ptr<ExecutorPool> pool_;
  std::thread thread_;
  std::map<uint64_t, Status> answers_;
};

TEST_F(ExecutorPoolTest, WhileALinkIsDownAnotherExecutorIsStarted) {
  Listen();
  Run();
  auto peer = std::make_unique<Peer>(socket_path_);
  peer->Introduce({});
  ASSERT_TRUE(Await([&] { return !pool_->executors().empty() && StateOfFirst() == ExecutorState::kServing; }));
  peer.reset();
  ASSERT_TRUE(Await([&] { return StateOfFirst() == ExecutorState::kDisconnected; }));
  OnLoop([&] { Open(1); });
  EXPECT_EQ(OnLoop([&] { return pool_->executors().size(); }), 2u);
  EXPECT_EQ(OnLoop([&] { return pool_->executors().back()->waiting.size(); }), 1u) << "and the session is for that one";
  EXPECT_TRUE(OnLoop([&] { return answers_.empty(); }));
}

TEST_F(ExecutorPoolTest, DomainsOfOthersAreNotCounted) {
  config_.max_domains_per_user = 1;
  Listen();
  Run();
  Peer peer(socket_path_);
  peer.Introduce({});
  ASSERT_TRUE(Await([&] { return !pool_->executors().empty() && StateOfFirst() == ExecutorState::kServing; }));
  OnLoop([&] { Open(1, kUser + 1); });
  EXPECT_EQ(OnLoop([&] { return pool_->executors().size(); }), 2u);
  EXPECT_TRUE(OnLoop([&] { return answers_.empty(); })) << "nobody is refused";
}

TEST_F(ExecutorPoolTest, AProcessOfAnotherUserIsNoExecutor) {
  constexpr uid_t kNobody = 65534;
  if (::geteuid() != 0) GTEST_SKIP() << "only root can be somebody else";
  Listen();
  Run();
  ASSERT_EQ(::chmod(directory_.c_str(), 0755), 0);
  ASSERT_EQ(::chmod(socket_path_.c_str(), 0777), 0);
  std::unique_ptr<Peer> peer;
  // The system call is of this thread alone, and so is who it is for whom it connects to.
  std::thread([&] {
    ASSERT_EQ(::syscall(SYS_setresuid, -1, kNobody, -1), 0);
    peer = std::make_unique<Peer>(socket_path_);
  }).join();
  EXPECT_TRUE(peer->IsTurnedAway());
}

// Its values would be taken for others.
TEST_F(ExecutorPoolTest, AnExecutorWithOtherFiguresIsNotAdopted) {
  Listen();
  Run();
  Peer stranger(socket_path_);
  stranger.SayHello(control::kSessionFiguresHash + 1);
  EXPECT_EQ(stranger.TakeSession(), 0u) << "hung up on";
  EXPECT_TRUE(OnLoop([&] { return pool_->executors().empty(); }));
}

TEST_F(ExecutorPoolTest, WhatEndedWhileTheLinkWasDownIsCountedOnceAndListedNoMore) {
  Listen();
  Run();
  const auto launches_of_ended = [&] {
    const auto& ended = pool_->ledger().ended();
    return ended.empty() ? 0 : ended.begin()->second["kernel_launches"];
  };
  {
    Peer peer(socket_path_);
    peer.SayHello();
    peer.Report(1, 100);
    peer.Report(2, 20);
    peer.EndReports();
    ASSERT_TRUE(Await([&] { return pool_->NumSessions() == 2; }));
  }
  ASSERT_TRUE(Await([&] { return StateOfFirst() == ExecutorState::kDisconnected; }));
  Peer peer(socket_path_);
  peer.SayHello();
  peer.Report(2, 21);
  ASSERT_TRUE(Await([&] { return StateOfFirst() == ExecutorState::kServing; }));
  EXPECT_EQ(OnLoop([&] { return pool_->NumSessionsLike(OfUser()); }), 2u) << "the reports may not be complete";
  peer.EndReports();
  ASSERT_TRUE(Await([&] { return pool_->NumSessions() == 1; }));
  EXPECT_EQ(OnLoop(launches_of_ended), 100u) << "what a tenant has done never becomes less";
  EXPECT_TRUE(OnLoop([&] { return pool_->executors().front()->sessions.contains(2); }));
}

// Prometheus would take a counter that falls for one that began anew, and count what still runs once more.
TEST_F(ExecutorPoolTest, TheNextTallydKnowsWhatTenantsHadDone) {
  Listen();
  Run();
  Peer peer(socket_path_);
  peer.SayHello();
  peer.Report(1, 100, 0, /*has_ended=*/true);
  peer.EndReports();
  ASSERT_TRUE(Await([&] { return ::access((directory_ + "/ledger").c_str(), F_OK) == 0; }));
  OnLoop([&] {
    pool_.reset();
    Listen();
    return true;
  });
  const auto ended = OnLoop([&] { return pool_->ledger().ended(); });
  ASSERT_EQ(ended.size(), 1u);
  EXPECT_EQ(ended.begin()->second["kernel_launches"], 100u);
}

TEST_F(ExecutorPoolTest, SessionsThatWaitForAnEarlierExecutorCountAndAreCountedOnceMore) {
  config_.max_sessions_per_user = 3;
  BeNoted();
  Listen();
  for (const uint64_t id : {11, 12, 13, 14}) Open(id);
  Open(21, kUser + 1);
  ASSERT_EQ(answers_.size(), 1u) << "the others wait";
  EXPECT_THAT(answers_.at(14).message(), HasSubstr("max_sessions_per_user"));
  Peer peer(socket_path_);
  peer.Introduce({1, 2});
  Run();
  EXPECT_EQ(peer.TakeSession(), 11u);
  ASSERT_TRUE(Await([&] { return answers_.size() == 4; }));
  EXPECT_TRUE(answers_.at(11).ok());
  for (const uint64_t id : {12, 13}) EXPECT_THAT(answers_.at(id).message(), HasSubstr("max_sessions_per_user"));
  EXPECT_EQ(OnLoop([&] { return pool_->NumSessionsLike(OfUser()); }), 3u);
}

TEST_F(ExecutorPoolTest, WhoIsHeldForAGrantThatIsRevokedIsToldAndNobodyElse) {
  config_.max_sessions_per_user = 1;
  BeNoted();
  Listen();
  Open(11);
  Open(12, kUser, 5);  // of the same user, and not counted with it
  Open(13, kUser, 6);
  EXPECT_TRUE(answers_.empty());
  pool_->EndGrant(5, "gone", Status(StatusCode::kPermissionDenied, "revoked"));
  ASSERT_EQ(answers_.size(), 1u);
  EXPECT_EQ(answers_.at(12).code(), StatusCode::kPermissionDenied);
  EXPECT_EQ(pool_->NumSessions(), 2u);
}

TEST_F(ExecutorPoolTest, SoDoThoseOfAllUsersTogether) {
  config_.max_sessions = 3;
  BeNoted();
  Listen();
  for (const uint64_t id : {11, 12}) Open(id);
  Open(21, kUser + 1);
  EXPECT_TRUE(answers_.empty());
  Open(22, kUser + 1);
  ASSERT_EQ(answers_.size(), 1u);
  EXPECT_THAT(answers_.at(22).message(), HasSubstr("(max_sessions)"));
  Peer peer(socket_path_);
  peer.Introduce({1, 2});
  Run();
  EXPECT_EQ(peer.TakeSession(), 11u);
  ASSERT_TRUE(Await([&] { return answers_.size() == 4; }));
  for (const uint64_t id : {12, 21}) EXPECT_THAT(answers_.at(id).message(), HasSubstr("(max_sessions)"));
}

// Each that is made stops for a moment what a service has on the GPU.
TEST_F(ExecutorPoolTest, BesideAServiceBestEffortContextsHaveFewGpuChannels) {
  Listen();
  Open(1);
  EXPECT_THAT(WordsOfLast(), Not(HasSubstr("--few-gpu-channels"))) << "nobody is there";
  Open(2, kUser + 1, 0, shm::PriorityClass::kHighPriority);
  EXPECT_THAT(WordsOfLast(), Not(HasSubstr("--few-gpu-channels"))) << "it is the service";
  Open(3, kUser + 1);
  EXPECT_THAT(WordsOfLast(), HasSubstr("--few-gpu-channels"));
  Open(4, kUser + 2, 0, shm::PriorityClass::kHighPriority);
  EXPECT_THAT(WordsOfLast(), Not(HasSubstr("--few-gpu-channels"))) << "another service";
}

// Streams that a gate has stopped keep theirs.
TEST_F(ExecutorPoolTest, WithTransformsTheyHaveMany) {
  config_.transforms = control::Transforms::kGate;
  Listen();
  Open(1, kUser, 0, shm::PriorityClass::kHighPriority);
  Open(2);
  EXPECT_THAT(WordsOfLast(), AllOf(HasSubstr("--transforms gate"), Not(HasSubstr("--few-gpu-channels"))));
}

// Of one rank, whose program was killed with work on the GPU: it ends with that, as a process would natively.
TEST_F(ExecutorPoolTest, WhoLeavesGetsNoMoreSessionsAndHasNotFailed) {
  Listen();
  Run();
  Peer peer(socket_path_);
  peer.Introduce({});
  ASSERT_TRUE(Await([&] { return !pool_->executors().empty() && StateOfFirst() == ExecutorState::kServing; }));
  for (int i = 0; i < 6; ++i) peer.Leave();
  ASSERT_TRUE(Await([&] { return StateOfFirst() == ExecutorState::kLeaving; }));
  OnLoop([&] { Open(1); });
  EXPECT_EQ(OnLoop([&] { return pool_->executors().size(); }), 2u) << "the next one starts at once";
  EXPECT_TRUE(OnLoop([&] { return pool_->executors().front()->is_end_expected; }));
  EXPECT_TRUE(OnLoop([&] { return pool_->counters().at(BestEffortOf(kUser).Label()).faults == 0; }));
}

// Of a domain that others have, too: their programs go on, and it ends with the last of them.
TEST_F(ExecutorPoolTest, WhoLeavesEndsOnceItsSessionsAreOver) {
  Listen();
  Run();
  Peer peer(socket_path_);
  peer.Introduce({1});
  ASSERT_TRUE(Await([&] { return pool_->NumSessions() == 1; }));
  peer.Leave();
  peer.Idle();
  peer.Report(2, 0);  // one that was on its way when it said so
  ASSERT_TRUE(Await([&] { return pool_->NumSessions() == 2; }));
  EXPECT_EQ(OnLoop([&] { return StateOfFirst(); }), ExecutorState::kLeaving);
  for (const uint64_t id : {1, 2}) peer.Report(id, 0, 0, /*has_ended=*/true);
  peer.Idle();
  ASSERT_TRUE(Await([&] { return StateOfFirst() == ExecutorState::kRetiring; }));
}

TEST_F(ExecutorPoolTest, WhoLeavesGetsNoMoreSessionsWhenItConnectsAgain) {
  Listen();
  Run();
  {
    Peer peer(socket_path_);
    peer.Introduce({1});
    peer.Leave();
    ASSERT_TRUE(Await([&] { return !pool_->executors().empty() && StateOfFirst() == ExecutorState::kLeaving; }));
  }
  Peer peer(socket_path_);
  peer.SayHello();
  peer.Report(1, 7);
  peer.EndReports();
  ASSERT_TRUE(Await([&] { return pool_->executors().front()->sessions.at(1).figures["kernel_launches"] == 7; }));
  EXPECT_EQ(OnLoop([&] { return StateOfFirst(); }), ExecutorState::kLeaving);
}

// Something else than what it waits for may have it looked at.
TEST_F(ExecutorPoolTest, WhoWaitsUntilAnExecutorMayStartGoesOnWaitingUntilThen) {
  Listen();
  Run();
  Peer peer(socket_path_);
  peer.SayHello();
  for (int i = 0; i < 6; ++i) peer.Fault();
  ASSERT_TRUE(Await([&] {
    const auto counters = pool_->counters().find(BestEffortOf(kUser).Label());
    return counters != pool_->counters().end() && counters->second.faults == 6;
  }));
  OnLoop([&] { Open(1); });
  OnLoop([&] { Open(2, kUser + 1); });
  ASSERT_EQ(OnLoop([&] { return pool_->executors().size(); }), 2u)
      << "one for the other user, who has to wait for nothing";
  ::kill(OnLoop([&] { return pool_->executors().back()->pid; }), SIGKILL);
  ASSERT_TRUE(Await([&] { return pool_->executors().size() == 1; }));
  EXPECT_TRUE(OnLoop([&] { return answers_.contains(2) && !answers_.contains(1); }));
  EXPECT_EQ(OnLoop([&] { return pool_->NumSessionsLike(OfUser()); }), 1u);
  OnLoop([&] { pool_->Shutdown(false, std::chrono::seconds(1), [] {}); });
  EXPECT_THAT(OnLoop([&] { return answers_.at(1); }).message(), HasSubstr("tallyd is ending"));
}

TEST_F(ExecutorPoolTest, WhatAnExecutorsSocketDoesNotHoldGoesWhenThereIsRoom) {
  constexpr uint64_t kSessions = 500;
  Listen();
  Run();
  Peer peer(socket_path_);
  peer.Introduce({});
  ASSERT_TRUE(Await([&] { return !pool_->executors().empty() && StateOfFirst() == ExecutorState::kServing; }));
  OnLoop([&] {
    for (uint64_t id = 1; id <= kSessions; ++id) Open(id);
  });
  ASSERT_LT(OnLoop([&] { return answers_.size(); }), kSessions) << "this test is about more than it holds";
  for (uint64_t id = 1; id <= kSessions; ++id) ASSERT_EQ(peer.TakeSession(), id);
  ASSERT_TRUE(Await([&] { return answers_.size() == kSessions; }));
  for (const auto& [id, answer] : answers_) EXPECT_TRUE(answer.ok()) << id << ": " << answer.message();
}

TEST_F(ExecutorPoolTest, WhoIsKnownForLongBlocksGetsAContextOfItsOwn) {
  const std::string own = BeKnown();
  Listen();
  EXPECT_EQ(OpenShared(1), own);
  EXPECT_THAT(WordsOfLast(), AllOf(HasSubstr("--priority-class best-effort"), Not(HasSubstr("--mixed-classes")),
                                   Not(HasSubstr("--own-domain"))))
      << "a process of it that is killed must not soon end those of others";
  EXPECT_EQ(pool_->counters().begin()->first, "own:7") << "there is no end of such names";
  EXPECT_EQ(OpenShared(2, shm::PriorityClass::kHighPriority), kMixedDomain) << "a service has no gates";
  EXPECT_EQ(OpenShared(3, shm::PriorityClass::kBestEffort, kUser + 1), kMixedDomain) << "somebody else's";
  control::SessionIdentity identity = OfUser();
  identity.session_id = 4;
  identity.pid = ::getpid();
  identity.priority_class = static_cast<uint32_t>(shm::PriorityClass::kBestEffort);
  pool_->Open(BestEffortOf(kUser), identity, UniqueFd(::open("/dev/null", O_RDWR | O_CLOEXEC)), [](Status) {});
  EXPECT_EQ(DomainOf(4), "best-effort") << "where no context is shared, or it names a domain";
}

TEST_F(ExecutorPoolTest, WhereItCannotHaveOneItSharesAsBefore) {
  BeKnown();
  config_.max_domains_per_user = 2;
  Listen();
  EXPECT_EQ(OpenShared(1, shm::PriorityClass::kHighPriority), kMixedDomain);
  Open(2);
  EXPECT_EQ(OpenShared(3), kMixedDomain) << "all domains are there";
  // As one that is to end: others wait for that.
  pool_->executors().back()->state = ExecutorState::kRetiring;
  EXPECT_EQ(OpenShared(4), kMixedDomain) << "it does not wait for one";
  EXPECT_TRUE(answers_.empty()) << "nobody is refused";
}

TEST_F(ExecutorPoolTest, NorDoesItTakeTheLastOne) {
  BeKnown();
  config_.max_domains_per_user = 3;
  Listen();
  Open(1);
  Open(2, kUser, 0, shm::PriorityClass::kHighPriority);
  EXPECT_EQ(OpenShared(3), kMixedDomain) << "which a service needs some time";
}

TEST_F(ExecutorPoolTest, SoDoesWhoseOwnExecutorDoesNotStart) {
  const std::string own = BeKnown();
  std::ofstream(config_.executor_path) << "#!/bin/sh\ncase \"$*\" in *long-blocks*) exit 1;; esac\nexec sleep 1000\n";
  Listen();
  EXPECT_EQ(OpenShared(1), own);
  Run();
  EXPECT_TRUE(Await([&] { return DomainOf(1) == kMixedDomain; }));
  EXPECT_TRUE(OnLoop([&] { return answers_.empty(); }));
}

TEST_F(ExecutorPoolTest, LongBlocksOfAProgramAreRememberedAndThoseOfNobodyAreNot) {
  config_.cache_directory = directory_ + "/cache";
  Listen();
  Run();
  Peer peer(socket_path_);
  peer.Introduce({1, 2});
  peer.Report(2, 0, 0, /*has_ended=*/true);
  peer.FindLongBlocks(2);  // its client was gone by then
  peer.FindLongBlocks(77);
  peer.Report(3, 0);
  ASSERT_TRUE(Await([&] { return !pool_->executors().empty() && pool_->executors().front()->sessions.contains(3); }));
  control::SessionIdentity identity = OfUser();
  identity.pid = ::getpid();
  const LongBlocks kept(config_.cache_directory);
  EXPECT_FALSE(kept.Find(ProgramOf(identity).value()));
  peer.FindLongBlocks(1, "wgrad\x1b[31m");
  EXPECT_TRUE(Await([&] { return kept.Find(ProgramOf(identity).value()).has_value(); }));
  EXPECT_EQ(kept.Find(ProgramOf(identity).value()), "blocks of kernel wgrad?[31m ran on for 2.9 ms");
}

TEST_F(ExecutorPoolTest, ObjectivesAreToldOfEveryTenantThatComesOrGoes) {
  Listen();
  Run();
  Peer peer(socket_path_);
  peer.SayHello();
  peer.Report(1, 0);  // nobody has an objective yet
  peer.Report(2, 0, /*slo_latency_ns=*/1'000'000);
  peer.Report(3, 0);
  peer.Report(3, 10);
  peer.Report(2, 10, 1'000'000);
  peer.Report(3, 20, 0, /*has_ended=*/true);
  peer.EndReports();
  ASSERT_TRUE(Await([&] {
    const auto& executors = pool_->executors();
    return !executors.empty() && StateOfFirst() == ExecutorState::kServing && executors.front()->sessions.size() == 2 &&
           !pool_->ledger().ended().empty();
  }));
  OnLoop([&] { Open(4); });
  EXPECT_EQ(peer.TakeSession(), 4u);
  EXPECT_EQ(peer.num_tunings(), 1 + 3) << "at first, and for sessions 2 and 3 that come and 3 that goes";
  OnLoop([&] { Open(5); });
  EXPECT_EQ(peer.TakeSession(), 5u);
  EXPECT_EQ(peer.num_tunings(), 1 + 4) << "for session 4";
}

}  // namespace
}  // namespace tally::server
