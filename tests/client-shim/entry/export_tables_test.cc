#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>

#include "tests/client-shim/shim_child.h"

namespace tally::client_shim {
namespace {

// Two devices and a reordering: the runtime's handshake covers the devices in the order the program sees them.
TEST(ShimCalls, StaticRuntimeAcceptsTheDriver) {
  FakeExecutor executor;
  executor.set_devices({FakeExecutor::MakeDevice(0), FakeExecutor::MakeDevice(1)});
  ScriptMemory(&executor);
  for (const char* visible : {"0,1", "1,0", "1"}) {
    EXPECT_EQ(RunInChild(executor.socket_path(),
                         [&] {
                           ::setenv("CUDA_VISIBLE_DEVICES", visible, 1);
                           ::setenv("LD_PRELOAD", TALLY_SHIM_PATH, 1);
                           ::dup2(STDERR_FILENO, STDOUT_FILENO);
                           ::execl(TALLY_RUNTIME_PROBE, TALLY_RUNTIME_PROBE, static_cast<char*>(nullptr));
                           return 1;
                         }),
              0)
        << visible;
  }
}

}  // namespace
}  // namespace tally::client_shim
