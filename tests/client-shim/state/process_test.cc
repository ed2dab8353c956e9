#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/client-shim/shim_child.h"

namespace tally::client_shim {
namespace {

TEST(ShimCalls, ForkedChildIsUninitialisedAndStaysSo) {
  FakeExecutor executor;
  EXPECT_EQ(RunInChild(executor.socket_path(),
                       [] {
                         if (Begin() != 0) return 1;
                         const pid_t child = ::fork();
                         if (child == 0) {
                           int count = 0;
                           if (SHIM(cuDeviceGetCount)(&count) != CUDA_ERROR_NOT_INITIALIZED) ::_exit(1);
                           if (SHIM(cuCtxSynchronize)() != CUDA_ERROR_NOT_INITIALIZED) ::_exit(2);
                           if (SHIM(cuInit)(0) != CUDA_ERROR_NOT_INITIALIZED) ::_exit(3);
                           if (SHIM(cuCtxSynchronize)() != CUDA_ERROR_NOT_INITIALIZED) ::_exit(4);
                           ::_exit(0);
                         }
                         int status = 0;
                         ::waitpid(child, &status, 0);
                         REQUIRE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
                         REQUIRE(SHIM(cuCtxSynchronize)() == CUDA_SUCCESS);  // the parent's session is untouched
                         return 0;
                       }),
            0);
}

}  // namespace
}  // namespace tally::client_shim
