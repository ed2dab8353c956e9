#include "server/executor/process/daemon_link.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <string>
#include <vector>

#include "base/event_loop.h"
#include "base/unix_socket.h"
#include "tests/support/temporary_directory.h"

namespace tally::server {
namespace {

constexpr std::chrono::seconds kLongEnough{20};

// A tallyd that ends at a moment of the test's choosing, and an executor's link to it, all on one thread.
class DaemonLinkTest : public testing::Test {
 protected:
  void SetUp() override {
    auto loop = EventLoop::Create();
    auto listening = ListenUnix(path_, S_IRUSR | S_IWUSR);
    ASSERT_TRUE(loop && listening);
    loop_ = std::move(*loop);
    listening_ = std::move(*listening);
  }

  // The link's own end is in the socket by then; it has not looked yet.
  void Run(std::function<void(DaemonLink&)> on_connected) {
    DaemonLink::Events events;
    events.on_add_session = [this](const control::SessionIdentity& identity, UniqueFd socket) {
      EXPECT_TRUE(socket.valid());
      sessions_.push_back(identity.session_id);
    };
    events.on_connected = [this, &on_connected] {
      if (num_connections_++ == 0) return on_connected(*link_);
      loop_->Quit();
    };
    DaemonLink link(*loop_, path_, std::move(events));
    link_ = &link;
    link.Connect();
    loop_->PostDelayed(kLongEnough, [this] { loop_->Quit(); });
    loop_->Run();
  }

  UniqueFd Accept() {
    auto socket = AcceptUnix(listening_.get());
    EXPECT_TRUE(socket);
    return socket ? std::move(*socket) : UniqueFd();
  }
  void SendSession(const UniqueFd& tallyd, uint64_t id) {
    control::LinkAddSession add{};
    add.header = {control::kLinkMagic, static_cast<uint32_t>(control::LinkKind::kAddSession), 0};
    add.identity.session_id = id;
    const int fd = listening_.get();  // any but the socket itself, which would stay open with it
    ASSERT_TRUE(SendMessage(tallyd.get(), std::as_bytes(std::span(&add, 1)), std::span(&fd, 1)).ok());
  }

  const TemporaryDirectory directory_;
  const std::string path_ = directory_.path() + "/executors.sock";
  std::unique_ptr<EventLoop> loop_;
  UniqueFd listening_;
  DaemonLink* link_ = nullptr;
  int num_connections_ = 0;
  std::vector<uint64_t> sessions_;
};

TEST_F(DaemonLinkTest, SessionsThatTallydHadSentBeforeItEndedAreTaken) {
  Run([this](DaemonLink&) {
    const UniqueFd tallyd = Accept();
    for (const uint64_t id : {1, 2, 3}) SendSession(tallyd, id);
  });
  EXPECT_EQ(sessions_, (std::vector<uint64_t>{1, 2, 3}));
  EXPECT_EQ(num_connections_, 2) << "it connects again";
}

TEST_F(DaemonLinkTest, AlsoWhereItsEndIsMetBySending) {
  Run([this](DaemonLink& link) {
    {
      const UniqueFd tallyd = Accept();
      for (const uint64_t id : {1, 2, 3}) SendSession(tallyd, id);
    }
    link.SendIdle();
  });
  EXPECT_EQ(sessions_, (std::vector<uint64_t>{1, 2, 3}));
  EXPECT_EQ(num_connections_, 2);
}

TEST_F(DaemonLinkTest, AlsoWhereItHadNotReadWhatItWasSent) {
  Run([this](DaemonLink& link) {
    const UniqueFd tallyd = Accept();
    link.SendIdle();
    for (const uint64_t id : {1, 2, 3}) SendSession(tallyd, id);
  });
  EXPECT_EQ(sessions_, (std::vector<uint64_t>{1, 2, 3}));
  EXPECT_EQ(num_connections_, 2);
}

}  // namespace
}  // namespace tally::server
