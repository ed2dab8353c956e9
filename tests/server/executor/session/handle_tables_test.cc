#include "server/executor/session/handle_tables.h"

#include <gtest/gtest.h>

#include <vector>

namespace tally::server {
namespace {

using shm::HandleKind;

class HandleTablesTest : public ::testing::Test {
 protected:
  uint64_t Add(HandleKind kind, int* object, uint32_t context) { return tables_[kind].Add(object, context); }
  // What is destroyed, in order.
  std::vector<void*> Remove(HandleKind kind, uint32_t context) {
    std::vector<void*> destroyed;
    tables_.RemoveEach(kind, context, [&](const HandleTable::Entry& entry) { destroyed.push_back(entry.value); });
    return destroyed;
  }

  HandleTables tables_{16};
  int objects_[3] = {};
};

TEST_F(HandleTablesTest, EachKindHasATableOfItsOwn) {
  const uint64_t event = Add(HandleKind::kEvent, &objects_[0], 0);
  const uint64_t stream = Add(HandleKind::kStream, &objects_[1], 0);
  EXPECT_EQ(tables_[HandleKind::kEvent].Find(event), &objects_[0]);
  EXPECT_EQ(tables_[HandleKind::kStream].Find(event), nullptr);
  EXPECT_EQ(tables_[HandleKind::kStream].Find(stream), &objects_[1]);
}

TEST_F(HandleTablesTest, OneContextsObjectsGoAndTheOthersStay) {
  const uint64_t gone = Add(HandleKind::kEvent, &objects_[0], 3);
  const uint64_t stays = Add(HandleKind::kEvent, &objects_[1], 4);
  EXPECT_EQ(Remove(HandleKind::kEvent, 3), std::vector<void*>{&objects_[0]});
  EXPECT_EQ(tables_[HandleKind::kEvent].Find(gone), nullptr);
  EXPECT_EQ(tables_[HandleKind::kEvent].Find(stays), &objects_[1]);
}

TEST_F(HandleTablesTest, NoContextMeansAll) {
  Add(HandleKind::kEvent, &objects_[0], 3);
  Add(HandleKind::kEvent, &objects_[1], shm::kNoContext);
  EXPECT_EQ(Remove(HandleKind::kEvent, shm::kNoContext).size(), 2u);
  EXPECT_EQ(tables_[HandleKind::kEvent].size(), 0u);
}

TEST_F(HandleTablesTest, WhatWentWithAnotherOneIsNotDestroyedTwice) {
  const uint64_t library = Add(HandleKind::kModule, &objects_[0], 0);
  const uint64_t module = Add(HandleKind::kModule, &objects_[1], 0);
  ASSERT_NE(library, module);
  int num_destroyed = 0;
  tables_.RemoveEach(HandleKind::kModule, 0, [&](const HandleTable::Entry& entry) {
    ++num_destroyed;
    tables_[HandleKind::kModule].Remove(entry.handle == library ? module : library);
  });
  EXPECT_EQ(num_destroyed, 1);
  EXPECT_EQ(tables_[HandleKind::kModule].size(), 0u);
}

}  // namespace
}  // namespace tally::server
