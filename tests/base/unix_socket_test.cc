#include "base/unix_socket.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/un.h>

#include <cstring>
#include <filesystem>
#include <future>

#include "tests/support/temporary_directory.h"

namespace tally {
namespace {

using std::chrono::milliseconds;

std::span<const std::byte> Bytes(std::string_view text) { return std::as_bytes(std::span(text)); }

class UnixSocket : public testing::Test {
 protected:
  std::string Path() const { return directory_ + "/socket"; }

  const TemporaryDirectory temporary_;
  const std::string directory_ = temporary_.path();
};

TEST_F(UnixSocket, CarriesMessagesAndDescriptors) {
  auto listener = ListenUnix(Path(), 0600);
  ASSERT_TRUE(listener) << listener.error().ToString();
  auto client = ConnectUnix(Path());
  auto server = AcceptUnix(listener->get());
  ASSERT_TRUE(client && server);
  UniqueFd file(::open("/dev/null", O_RDWR));
  const int fds[] = {file.get()};
  ASSERT_TRUE(SendMessage(client->get(), Bytes("one"), fds).ok());
  ASSERT_TRUE(SendMessage(client->get(), Bytes("two")).ok());
  auto one = ReceiveMessage(server->get(), milliseconds(1000));
  auto two = ReceiveMessage(server->get(), milliseconds(1000));
  ASSERT_TRUE(one && two);
  EXPECT_EQ(one->bytes.size(), 3u);
  EXPECT_EQ(one->fds.size(), 1u);
  EXPECT_EQ(std::memcmp(two->bytes.data(), "two", 3), 0) << "message boundaries are kept";
  EXPECT_EQ(GetPeerCredentials(server->get())->pid, ::getpid());
}

TEST_F(UnixSocket, TellsTimeOutFromHangUp) {
  auto pair = CreateSocketPair();
  ASSERT_TRUE(pair);
  EXPECT_EQ(ReceiveMessage(pair->first.get(), milliseconds(1)).error().code(), StatusCode::kDeadlineExceeded);
  EXPECT_FALSE(PeerHungUp(pair->first.get()));
  pair->second.Reset();
  EXPECT_TRUE(PeerHungUp(pair->first.get()));
  EXPECT_EQ(ReceiveMessage(pair->first.get(), milliseconds(1000)).error().code(), StatusCode::kUnavailable);
}

// The kernel then says first that what it had not read is lost.
TEST_F(UnixSocket, WhatAPeerSaidBeforeItWentArrivesAlsoIfItHadNotReadAll) {
  auto pair = CreateSocketPair();
  ASSERT_TRUE(pair);
  const std::byte unread[] = {std::byte{1}}, last_words[] = {std::byte{2}, std::byte{3}};
  ASSERT_TRUE(SendMessage(pair->first.get(), unread).ok());
  ASSERT_TRUE(SendMessage(pair->second.get(), last_words).ok());
  pair->second.Reset();
  const auto message = ReceiveMessage(pair->first.get(), std::chrono::milliseconds(0));
  ASSERT_TRUE(message) << message.error().message();
  EXPECT_EQ(message->bytes, (std::vector<std::byte>(std::begin(last_words), std::end(last_words))));
  const auto end = ReceiveMessage(pair->first.get(), std::chrono::milliseconds(0));
  ASSERT_FALSE(end);
  EXPECT_EQ(end.error().code(), StatusCode::kUnavailable);
}

TEST_F(UnixSocket, ReplacesAStaleSocketButNotALiveOne) {
  {
    auto stale = ListenUnix(Path(), 0600);
    ASSERT_TRUE(stale);
  }  // closed, but its name remains
  auto live = ListenUnix(Path(), 0600);
  ASSERT_TRUE(live) << live.error().ToString();
  EXPECT_EQ(ListenUnix(Path(), 0600).error().code(), StatusCode::kAlreadyExists);
}

// A listener for which one connection may wait.
UniqueFd ListenForOne(const std::string &path) {
  UniqueFd fd(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  path.copy(address.sun_path, sizeof(address.sun_path) - 1);
  EXPECT_EQ(::bind(fd.get(), reinterpret_cast<const sockaddr *>(&address), sizeof(address)), 0);
  EXPECT_EQ(::listen(fd.get(), 0), 0);
  return fd;
}

TEST_F(UnixSocket, ConnectingWaitsForItsTurnWithinALimit) {
  const UniqueFd listener = ListenForOne(Path());
  ASSERT_TRUE(ConnectUnix(Path()));
  EXPECT_EQ(ConnectUnix(Path(), milliseconds(10)).error().code(), StatusCode::kDeadlineExceeded);
  EXPECT_EQ(ListenUnix(Path(), 0600).error().code(), StatusCode::kAlreadyExists) << "somebody is there all the same";
  auto second = std::async(std::launch::async, [this] { return ConnectUnix(Path(), std::chrono::minutes(1)); });
  ASSERT_TRUE(AcceptUnix(listener.get()));
  ASSERT_TRUE(AcceptUnix(listener.get()));
  const auto connected = second.get();
  ASSERT_TRUE(connected) << connected.error().message();
  timeval left{1, 1};
  socklen_t size = sizeof(left);
  ASSERT_EQ(::getsockopt(connected->get(), SOL_SOCKET, SO_SNDTIMEO, &left, &size), 0);
  EXPECT_EQ(left.tv_sec + left.tv_usec, 0) << "the limit is for connecting only";
}

TEST_F(UnixSocket, PathsTooLongAreRefusedWithTheLimit) {
  const auto result = ListenUnix(std::string(200, 'x'), 0600);
  ASSERT_FALSE(result);
  EXPECT_NE(result.error().message().find("107"), std::string::npos);
}

TEST_F(UnixSocket, AHostileFloodOfDescriptorsIsClosedAndRefused) {
  auto pair = CreateSocketPair();
  UniqueFd file(::open("/dev/null", O_RDWR));
  int fds[16];
  std::fill(std::begin(fds), std::end(fds), file.get());
  iovec part{const_cast<char *>("x"), 1};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(fds))] = {};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof(control);
  cmsghdr *header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(sizeof(fds));
  std::memcpy(CMSG_DATA(header), fds, sizeof(fds));
  ASSERT_EQ(::sendmsg(pair->first.get(), &message, 0), 1);
  const auto count_open = [] {
    return std::distance(std::filesystem::directory_iterator("/proc/self/fd"), std::filesystem::directory_iterator{});
  };
  const auto before = count_open();
  EXPECT_EQ(ReceiveMessage(pair->second.get(), milliseconds(1000)).error().code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(count_open(), before);
}

}  // namespace
}  // namespace tally
