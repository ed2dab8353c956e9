#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include <algorithm>

#include "tests/sim-driver/api/driver_fixture.h"

namespace tally::sim_driver {
namespace {

// Sends descriptor 1 to a file while alive.
class Stdout {
 public:
  Stdout() {
    fflush(stdout);
    kept_ = dup(STDOUT_FILENO);
    char path[] = "/tmp/tally-sim-printf-XXXXXX";
    file_ = mkstemp(path);
    unlink(path);
    dup2(file_, STDOUT_FILENO);
  }
  ~Stdout() {
    fflush(stdout);
    dup2(kept_, STDOUT_FILENO);
    close(kept_);
    close(file_);
  }
  std::string Text() {
    std::string text(1 << 20, '\0');
    text.resize(static_cast<size_t>(std::max<ssize_t>(pread(file_, text.data(), text.size(), 0), 0)));
    return text;
  }

 private:
  int kept_ = -1;
  int file_ = -1;
};

class PrintfTest : public DriverTest {};

TEST_F(PrintfTest, AppearsAtSynchronisation) {
  Kernel("greet");
  std::string before, after;
  {
    Stdout out;
    uint32_t* const flags = NewFlags();
    const CUstream stream = NewStream();
    EXPECT_OK(Launch("greet", 3, 1, stream, 42U));
    EXPECT_OK(Launch("wait_for_flag", 1, 1, stream, Address(flags), Address(&flags[1]), 1U));
    before = out.Text();
    Raise(flags);
    EXPECT_OK(cuStreamSynchronize(stream));
    after = out.Text();
  }
  EXPECT_EQ("", before);
  for (const char* line : {"block 0 says 42\n", "block 1 says 42\n", "block 2 says 42\n"}) {
    EXPECT_NE(std::string::npos, after.find(line)) << after;
  }
}

TEST_F(PrintfTest, FullBufferIsWrittenEarly) {
  EXPECT_OK(cuCtxSetLimit(CU_LIMIT_PRINTF_FIFO_SIZE, 64));
  Kernel("greet");
  std::string text;
  {
    Stdout out;
    EXPECT_OK(Launch("greet", 100, 1, nullptr, 7U));
    EXPECT_OK(cuCtxSynchronize());
    text = out.Text();
  }
  EXPECT_EQ(100, std::count(text.begin(), text.end(), '\n'));
}

}  // namespace
}  // namespace tally::sim_driver
