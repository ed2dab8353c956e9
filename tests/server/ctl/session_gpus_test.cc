#include "server/ctl/session_gpus.h"

#include <gtest/gtest.h>

namespace tally::cli {
namespace {

void AddBusy(const std::string& gpu, uint32_t place, control::v1::Session* session) {
  auto* busy = session->add_busy();
  busy->set_gpu(gpu);
  busy->set_place(place);
}

TEST(SessionGpus, HaveTheNumbersOfNvidiaSmiEachOnce) {
  std::vector<GpuReading> gpus(3);
  for (uint32_t index = 0; index < 3; ++index) gpus[index].index = index;
  gpus[2].uuid = "GPU-c";
  gpus[1].uuid = "GPU-b";
  control::v1::Session session;
  EXPECT_EQ(GpusOf(session, gpus), "-");
  AddBusy("GPU-c", 0, &session);  // in both classes, for a while each
  AddBusy("GPU-c", 0, &session);
  EXPECT_EQ(GpusOf(session, gpus), "2");
  AddBusy("GPU-b", 1, &session);
  EXPECT_EQ(GpusOf(session, gpus), "1,2");
}

TEST(SessionGpus, WithoutNvmlTheyHaveTallydsNumbers) {
  control::v1::Session session;
  AddBusy("GPU-x", 4, &session);
  EXPECT_EQ(GpusOf(session, {}), "4");
}

}  // namespace
}  // namespace tally::cli
