#include "server/executor/session/handle_table.h"

#include <gtest/gtest.h>

namespace tally::server {
namespace {

using shm::HandleKind;
using shm::MakeHandle;

void* Value(uintptr_t number) { return reinterpret_cast<void*>(number); }

TEST(HandleTableTest, ServerNamesAreFoundAndNotMistakenForTheirSuccessors) {
  HandleTable table(HandleKind::kGraph, 10, false);
  const uint64_t first = table.Add(Value(1), 7);
  EXPECT_TRUE(shm::IsServerNamed(first));
  EXPECT_EQ(shm::HandleKindOf(first), HandleKind::kGraph);
  EXPECT_EQ(table.Find(first), Value(1));
  EXPECT_EQ(table.FindEntry(first)->context, 7u);
  EXPECT_EQ(table.Remove(first), Value(1));
  const uint64_t second = table.Add(Value(2), 0);
  EXPECT_EQ(shm::HandleIndexOf(second), shm::HandleIndexOf(first));
  EXPECT_NE(second, first);
  EXPECT_EQ(table.Find(first), nullptr);
  EXPECT_EQ(table.Remove(first), nullptr);
  EXPECT_EQ(table.Find(second), Value(2));
}

TEST(HandleTableTest, OtherKindsAndStrangeBitsAreNotFound) {
  HandleTable table(HandleKind::kGraph, 10, false);
  const uint64_t handle = table.Add(Value(1), 0);
  for (int bit = 0; bit < 64; ++bit) EXPECT_EQ(table.Find(handle ^ uint64_t{1} << bit), nullptr) << bit;
  EXPECT_EQ(table.Find(0), nullptr);
}

TEST(HandleTableTest, ClientNamesAreCheckedAndUnique) {
  HandleTable table(HandleKind::kEvent, 100, true);
  const uint64_t name = MakeHandle(HandleKind::kEvent, 3, false, 42);
  EXPECT_TRUE(table.AddNamed(name, Value(5), 0));
  EXPECT_FALSE(table.AddNamed(name, Value(6), 0));
  EXPECT_FALSE(table.AddNamed(MakeHandle(HandleKind::kEvent, 4, false, 42), Value(6), 0));
  EXPECT_FALSE(table.AddNamed(MakeHandle(HandleKind::kGraph, 3, false, 1), Value(6), 0));
  EXPECT_FALSE(table.AddNamed(MakeHandle(HandleKind::kEvent, 3, true, 1), Value(6), 0));
  EXPECT_FALSE(table.AddNamed(MakeHandle(HandleKind::kEvent, 3, false, 100), Value(6), 0));
  EXPECT_FALSE(table.AddNamed(name | 3, Value(6), 0));
  EXPECT_FALSE(table.AddNamed(name | uint64_t{1} << 60, Value(6), 0));
  EXPECT_EQ(table.FindHandle(Value(5)), name);
  EXPECT_EQ(table.Remove(name), Value(5));
  EXPECT_EQ(table.FindHandle(Value(5)), 0u);
  EXPECT_TRUE(table.AddNamed(MakeHandle(HandleKind::kEvent, 4, false, 42), Value(6), 0));
}

TEST(HandleTableTest, ByValueNamesAThingOnce) {
  HandleTable table(HandleKind::kGraphNode, 2, true);
  const uint64_t name = table.Add(Value(1), 0);
  EXPECT_EQ(table.Add(Value(1), 0), name);
  EXPECT_NE(table.Add(Value(2), 0), name);
  EXPECT_EQ(table.Add(Value(3), 0), 0u);  // full
  EXPECT_EQ(table.size(), 2u);
  EXPECT_EQ(table.Entries().size(), 2u);
}

}  // namespace
}  // namespace tally::server
