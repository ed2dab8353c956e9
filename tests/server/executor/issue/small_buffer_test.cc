#include "server/executor/issue/small_buffer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <span>
#include <string>
#include <utility>

namespace tally::server {
namespace {

std::string TextOf(const SmallBuffer& buffer) { return {reinterpret_cast<const char*>(buffer.data()), buffer.size()}; }
void Put(SmallBuffer& buffer, const std::string& text) { buffer.Assign(std::as_bytes(std::span(text))); }

const std::string kShort(16, 's');
const std::string kLong(SmallBuffer::kInPlace + 1, 'l');

TEST(SmallBufferTest, WhatIsMovedFromIsEmptyAndOfUse) {
  for (const std::string& text : {kShort, std::string(SmallBuffer::kInPlace, 'f'), kLong}) {
    SmallBuffer from;
    Put(from, text);
    SmallBuffer to = std::move(from);
    EXPECT_EQ(TextOf(to), text);
    EXPECT_EQ(from.size(), 0u);  // NOLINT: moved from on purpose
    Put(from, "again");
    EXPECT_EQ(TextOf(from), "again");
    EXPECT_EQ(TextOf(to), text) << "they share memory";
    to = std::move(from);
    EXPECT_EQ(TextOf(to), "again");
  }
}

TEST(SmallBufferTest, WhatIsNewIsZeroAndTheRestStays) {
  for (const size_t size : {size_t{24}, SmallBuffer::kInPlace + 100}) {
    SmallBuffer buffer;
    Put(buffer, std::string(SmallBuffer::kInPlace, 'o'));  // what an earlier launch left
    Put(buffer, kShort);
    buffer.Resize(size);
    EXPECT_EQ(TextOf(buffer), kShort + std::string(size - kShort.size(), '\0'));
    buffer.Resize(4);
    EXPECT_EQ(TextOf(buffer), "ssss");
  }
}

TEST(SmallBufferTest, MemoryIsKeptForTheNextContent) {
  SmallBuffer buffer;
  Put(buffer, kLong);
  const std::byte* const place = buffer.data();
  Put(buffer, kShort);
  Put(buffer, kLong);
  EXPECT_EQ(buffer.data(), place);
}

}  // namespace
}  // namespace tally::server
