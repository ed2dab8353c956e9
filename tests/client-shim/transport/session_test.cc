// The session with its executor as a program may meet it: threads at once, addresses that are taken, sockets that the
// program has closed, a long way through the arena.
#include "client-shim/transport/session.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <barrier>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <map>
#include <set>
#include <thread>
#include <utility>
#include <vector>

#include "proto/control/graph_figures.h"
#include "proto/control/window_mode.h"
#include "tests/client-shim/shim_child.h"

namespace tally::client_shim {
namespace {

TEST(Session, ThreadsThatRunAtOnceHaveChannelsOfTheirOwn) {
  constexpr int kThreads = 4;
  FakeExecutor executor;
  EXPECT_EQ(RunInChild(executor.socket_path(),
                       [] {
                         if (Begin() != 0) return 1;
                         // The first ones leave channels behind that all the later ones want.
                         for (int round = 0; round < 3; ++round) {
                           std::barrier all(kThreads);
                           std::vector<std::thread> threads;
                           for (int i = 0; i < kThreads; ++i) {
                             threads.emplace_back([&all] {
                               CUevent event = nullptr;
                               static_cast<void>(Begin());
                               SHIM(cuEventCreate)(&event, 0);
                               all.arrive_and_wait();
                               SHIM(cuEventCreate)(&event, 0);
                             });
                           }
                           for (std::thread& thread : threads) thread.join();
                         }
                         return 0;
                       }),
            0);
  std::map<uint32_t, int> created;
  for (const FakeRequest& request : executor.requests())
    created[request.channel] += request.op == static_cast<uint16_t>(shm::Op::kCreateEvent) ? 1 : 0;
  EXPECT_EQ(executor.num_channels(), kThreads + 1u) << "a channel is used again";
  for (const auto& [channel, count] : created) EXPECT_EQ(count, channel == 0 ? 0 : 6) << "channel " << channel;
}

// What the executor has put there would stay for as long as the session.
TEST(Session, PinnedMemoryWhoseAddressIsTakenIsGivenBack) {
  FakeExecutor executor;
  EXPECT_EQ(RunInChild(executor.socket_path(),
                       [] {
                         if (Begin() != 0) return 1;
                         void* const taken = reinterpret_cast<void*>(FakeExecutor::kFirstHostAddress);
                         REQUIRE(::mmap(taken, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1,
                                        0) == taken);
                         void* pinned = nullptr;
                         REQUIRE(SHIM(cuMemHostAlloc)(&pinned, 1000, 0) == CUDA_SUCCESS);
                         REQUIRE(pinned != taken);
                         std::memset(pinned, 1, 1000);
                         return 0;
                       }),
            0);
  EXPECT_EQ(executor.rejected_host_addresses(), std::vector<uint64_t>{FakeExecutor::kFirstHostAddress});
}

// Programs that become daemons close every descriptor there is; what they open next has the number of our socket.
TEST(Session, ASocketOfTheProgramIsNotTakenForOurs) {
  FakeExecutor executor;
  EXPECT_EQ(RunInChild(executor.socket_path(),
                       [] {
                         if (Begin() != 0) return 1;
                         constexpr int kLast = 99;  // above all that are open
                         for (int fd = 3; fd <= kLast; ++fd) ::close(fd);
                         std::vector<int> own;
                         while (own.empty() || own.back() <= kLast) {
                           int pair[2];
                           REQUIRE(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK, 0, pair) == 0);
                           own.insert(own.end(), {pair[0], pair[1]});
                         }
                         void* pinned = nullptr;
                         REQUIRE(SHIM(cuMemHostAlloc)(&pinned, 1000, 0) == CUDA_ERROR_DEVICE_UNAVAILABLE);
                         for (const int fd : own) {
                           char byte;
                           REQUIRE(::recv(fd, &byte, 1, 0) == -1);  // nobody has written to it, nor closed it
                           REQUIRE(errno == EAGAIN);
                         }
                         return 0;
                       }),
            0);
}

// The executor copies out of the arena later than the call returns.
TEST(Session, AChunkOfTheArenaIsUsedAgainOnceItsCopyIsDone) {
  FakeExecutor executor;
  ScriptMemory(&executor);
  EXPECT_EQ(
      RunInChild(executor.socket_path(),
                 [] {
                   if (Begin() != 0) return 1;
                   constexpr size_t kThreeArenas = 3ull * shm::kArenaChunks * shm::kArenaChunkBytes;
                   CUdeviceptr device = 0;
                   REQUIRE(SHIM(cuMemAlloc_v2)(&device, kThreeArenas) == CUDA_SUCCESS);
                   const std::vector<char> host(kThreeArenas, 'x');
                   REQUIRE(SHIM(cuMemcpyHtoDAsync_v2)(device, host.data(), kThreeArenas, nullptr) == CUDA_SUCCESS);
                   REQUIRE(SHIM(cuCtxSynchronize)() == CUDA_SUCCESS);
                   return 0;
                 }),
      0);
  std::set<uint32_t> in_use;
  uint64_t num_copied = 0;
  for (const FakeRequest& request : executor.requests()) {
    if (request.op == static_cast<uint16_t>(shm::Op::kAwaitArena)) in_use.erase(request.Read<uint32_t>());
    if (request.op != static_cast<uint16_t>(shm::Op::kCopy)) continue;
    const auto copy = request.Read<shm::Copy>();
    ASSERT_EQ(copy.source_place, static_cast<uint32_t>(shm::Place::kArena));
    const auto chunk = static_cast<uint32_t>(copy.source / shm::kArenaChunkBytes);
    EXPECT_TRUE(in_use.insert(chunk).second) << "chunk " << chunk << " after " << num_copied << " bytes";
    num_copied += copy.size_bytes;
  }
  EXPECT_EQ(num_copied, 3ull * shm::kArenaChunks * shm::kArenaChunkBytes);
}

TEST(ShimCalls, NoDaemonIsOneClearError) {
  EXPECT_EQ(RunInChild("/nonexistent/tally.sock",
                       [] {
                         REQUIRE(SHIM(cuInit)(0) == CUDA_ERROR_SYSTEM_NOT_READY);
                         int count = 0;
                         REQUIRE(SHIM(cuDeviceGetCount)(&count) == CUDA_ERROR_NOT_INITIALIZED);
                         int version = 0;
                         REQUIRE(SHIM(cuDriverGetVersion)(&version) == CUDA_SUCCESS && version == CUDA_VERSION);
                         return 0;
                       }),
            0);
}

// Not only tally-run sets it: in a container it is the image's, and nobody has looked at it.
TEST(ShimCalls, TheHelloHasTheWindowOfTheEnvironment) {
  using control::WindowMode;
  for (const auto& [text, mode] :
       {std::pair("", WindowMode::kOff), std::pair("off", WindowMode::kOff), std::pair("shadow", WindowMode::kShadow),
        std::pair("on", WindowMode::kOn), std::pair("On", WindowMode::kOff), std::pair("shadowy", WindowMode::kOff)}) {
    FakeExecutor executor;
    EXPECT_EQ(RunInChild(executor.socket_path(),
                         [text] {
                           ::setenv("TALLY_WINDOW", text, 1);
                           return SHIM(cuInit)(0) == CUDA_SUCCESS ? 0 : 1;
                         }),
              0);
    EXPECT_EQ(executor.last_hello().window, static_cast<uint16_t>(mode)) << text;
    EXPECT_EQ(executor.last_hello().priority_class, 0u);
  }
}

TEST(ShimCalls, TheHelloHasTheModeOfGraphsOfTheEnvironment) {
  using control::GraphMode;
  for (const auto& [text, mode] : {std::pair("", GraphMode::kPartitions), std::pair("off", GraphMode::kOff),
                                   std::pair("partitions", GraphMode::kPartitions),
                                   std::pair("spread", GraphMode::kSpread), std::pair("Off", GraphMode::kPartitions)}) {
    FakeExecutor executor;
    EXPECT_EQ(RunInChild(executor.socket_path(),
                         [text] {
                           ::setenv("TALLY_GRAPHS", text, 1);
                           return SHIM(cuInit)(0) == CUDA_SUCCESS ? 0 : 1;
                         }),
              0);
    EXPECT_EQ(executor.last_hello().graphs, static_cast<uint16_t>(mode)) << text;
    EXPECT_EQ(executor.last_hello().only_starts, 0u);
  }
}

TEST(ShimCalls, OtherProtocolVersionIsRefused) {
  FakeExecutor executor;
  executor.set_protocol_version(shm::kProtocolVersion + 1);
  EXPECT_EQ(
      RunInChild(executor.socket_path(), [] { return SHIM(cuInit)(0) == CUDA_ERROR_SYSTEM_DRIVER_MISMATCH ? 0 : 1; }),
      0);
}

// tallyd may give a session to an executor that has just lost its context, before it knows.
TEST(ShimCalls, ExecutorThatIsGoneBeforeItTookTheSessionIsAskedForAgain) {
  FakeExecutor executor;
  executor.LoseSessions(2);
  EXPECT_EQ(RunInChild(executor.socket_path(), [] { return SHIM(cuInit)(0) == CUDA_SUCCESS ? 0 : 1; }), 0);
  EXPECT_EQ(executor.num_hellos(), 3);
}

TEST(ShimCalls, ExecutorsThatAreAlwaysGoneAreAnErrorInTheEnd) {
  FakeExecutor executor;
  executor.LoseSessions(1000);
  EXPECT_EQ(RunInChild(executor.socket_path(), [] { return SHIM(cuInit)(0) == CUDA_ERROR_DEVICE_UNAVAILABLE ? 0 : 1; }),
            0);
  EXPECT_EQ(executor.num_hellos(), 5);
}

}  // namespace
}  // namespace tally::client_shim
