#include "cubin-transforms/cubin/attributes.h"

#include <gtest/gtest.h>

#include <cstring>

namespace tally::cubin_transforms {
namespace {

// A record of words, as .nv.info holds it.
std::vector<std::byte> RecordOf(uint8_t id, const std::vector<uint32_t>& words) {
  const auto bytes = static_cast<uint16_t>(words.size() * sizeof(uint32_t));
  std::vector<std::byte> record(4 + bytes);
  record[0] = std::byte{4};
  record[1] = std::byte{id};
  std::memcpy(&record[2], &bytes, sizeof(bytes));
  if (bytes != 0) std::memcpy(&record[4], words.data(), bytes);
  return record;
}

// The jump to the gate stands in place of the first instruction: whoever led there would run the gate again.
TEST(ReadKernelRecords, RefusesAnIndirectBranchToTheFirstInstruction) {
  const auto refusal_of = [](const std::vector<uint32_t>& words) {
    return ReadKernelRecords(RecordOf(attribute::kIndirectTargets, words), {}).refusal;
  };
  const std::string refused = "an indirect branch leads to the first instruction";
  EXPECT_EQ(refusal_of({0x80, 0, 2, 0x10, 0x90}), "");
  EXPECT_EQ(refusal_of({0x80, 0, 1, 0}), refused);
  EXPECT_EQ(refusal_of({0x80, 0, 2, 0x90, 0}), refused) << "the last of several";
  EXPECT_EQ(refusal_of({0x80, 0, 1, 0x90, 0xC0, 0, 1, 0}), refused) << "of the second branch";
  EXPECT_EQ(refusal_of({0, 0, 1, 0x90}), "") << "the branch itself is first";
  EXPECT_EQ(refusal_of({0x80, 0, 0xFFFFFFFF, 0x90}), "") << "more are promised than are there";
  EXPECT_EQ(refusal_of({0x80, 0, 0xFFFFFFFF, 0x90, 0}), refused);
}

}  // namespace
}  // namespace tally::cubin_transforms
