#include "client-shim/state/handle_names.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>

#include "client-shim/state/slot_table.h"

namespace tally::client_shim {
namespace {

struct Thing {
  uint64_t handle = 0;
};

TEST(HandleNames, StaleNamesFindNothing) {
  HandleNames names(shm::HandleKind::kEvent);
  SlotTable<Thing> things;
  const uint64_t first = names.Take();
  EXPECT_EQ(shm::HandleKindOf(first), shm::HandleKind::kEvent);
  EXPECT_FALSE(shm::IsServerNamed(first));
  things.Insert(std::make_unique<Thing>(Thing{first}));
  EXPECT_NE(things.Find(first), nullptr);
  EXPECT_NE(things.Remove(first), nullptr);
  names.Return(first);
  const uint64_t second = names.Take();
  EXPECT_EQ(shm::HandleIndexOf(second), shm::HandleIndexOf(first));
  EXPECT_NE(second, first);
  things.Insert(std::make_unique<Thing>(Thing{second}));
  EXPECT_EQ(things.Find(first), nullptr);
  EXPECT_NE(things.Find(second), nullptr);
}

}  // namespace
}  // namespace tally::client_shim
