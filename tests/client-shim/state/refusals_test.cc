#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <map>
#include <string>

#include "proto/driver/generated/driver_symbols.h"
#include "tests/client-shim/shim_child.h"

namespace tally::client_shim {
namespace {

// One line per function and process, on stderr; the executor is told of every call made after cuInit.
TEST(ShimCalls, RefusalsAreLoggedOnceAndReported) {
  FakeExecutor executor;
  int errors[2], output[2];
  ASSERT_EQ(::pipe(errors), 0);
  ASSERT_EQ(::pipe(output), 0);
  EXPECT_EQ(RunInChild(executor.socket_path(),
                       [&] {
                         ::dup2(errors[1], STDERR_FILENO);
                         ::dup2(output[1], STDOUT_FILENO);
                         CUmemGenericAllocationHandle handle = 0;
                         CUcontext context = nullptr;
                         CUexecAffinityParam affinity{};
                         const auto create = SHIM(cuMulticastCreate);
                         REQUIRE(create(&handle, nullptr) == CUDA_ERROR_NOT_SUPPORTED);  // before cuInit too
                         if (Begin() != 0) return 1;
                         for (int i = 0; i < 3; ++i) {
                           REQUIRE(create(&handle, nullptr) == CUDA_ERROR_NOT_SUPPORTED);
                           REQUIRE(SHIM(cuLaunch)(nullptr) == CUDA_ERROR_NOT_SUPPORTED);
                         }
                         for (int i = 0; i < 2; ++i) {  // one use of a function that is served
                           REQUIRE(SHIM(cuCtxCreate_v3)(&context, &affinity, 1, 0, 0) == CUDA_ERROR_NOT_SUPPORTED);
                         }
                         REQUIRE(SHIM(cuCtxSynchronize)() == CUDA_SUCCESS);
                         std::fflush(stdout);
                         return 0;
                       }),
            0);
  ::close(errors[1]);
  ::close(output[1]);
  char text[4096] = {};
  size_t size = 0;
  for (ssize_t more = 1; more > 0 && size < sizeof(text) - 1; size += static_cast<size_t>(std::max<ssize_t>(more, 0)))
    more = ::read(errors[0], text + size, sizeof(text) - 1 - size);
  EXPECT_EQ(::read(output[0], text + size, 1), 0) << "something on stdout";
  const std::string lines(text);
  EXPECT_EQ(std::count(lines.begin(), lines.end(), '\n'), 3) << lines;
  for (const char* name : {"cuMulticastCreate", "cuLaunch ", "cuCtxCreate_v3"}) {
    EXPECT_NE(lines.find(name), std::string::npos) << lines;
  }
  ::close(errors[0]);
  ::close(output[0]);
  std::map<std::string, int> noted;
  for (const FakeRequest& request : executor.requests()) {
    if (request.op == static_cast<uint16_t>(shm::Op::kNoteRefusal)) {
      ++noted[kDriverSymbols[request.Read<shm::NoteRefusal>().symbol_index].name];
    }
  }
  EXPECT_EQ(noted, (std::map<std::string, int>{{"cuMulticastCreate", 3}, {"cuLaunch", 3}, {"cuCtxCreate_v3", 2}}));
}

}  // namespace
}  // namespace tally::client_shim
