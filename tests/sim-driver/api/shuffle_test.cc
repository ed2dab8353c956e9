#include "sim-driver/api/shuffle.h"

#include <gtest/gtest.h>

#include <map>
#include <set>
#include <vector>

namespace tally::sim_driver {
namespace {

// Tasks are told apart by address only.
class ShuffleTest : public ::testing::Test {
 protected:
  static std::shared_ptr<Task> NewTask() {
    const auto owner = std::make_shared<int>();
    return {owner, reinterpret_cast<Task*>(owner.get())};
  }
  // Time goes on until one starts.
  std::shared_ptr<Task> Wait(Shuffle& shuffle) {
    while (true) {
      uint64_t wake_ns = 0;
      if (auto task = shuffle.Next(now_ns_, &wake_ns)) return task;
      if (wake_ns == Shuffle::kNever) return nullptr;
      EXPECT_GT(wake_ns, now_ns_);
      now_ns_ = wake_ns;
    }
  }
  // Places of `count` tasks that may all start at once, in the order in which they do.
  std::vector<int> Order(Shuffle& shuffle, int count) {
    std::map<Task*, int> places;
    for (int i = 0; i < count; ++i) {
      const auto task = NewTask();
      places[task.get()] = i;
      shuffle.Add(task, now_ns_);
    }
    std::vector<int> order;
    while (const auto task = Wait(shuffle)) {
      order.push_back(places.at(task.get()));
      shuffle.OnEnd(++now_ns_);
    }
    return order;
  }
  uint64_t now_ns_ = 1'000'000'000;
};

TEST_F(ShuffleTest, EveryOrderComesUpAndEachTaskOnce) {
  Shuffle shuffle(1);
  std::set<std::vector<int>> orders;
  for (int i = 0; i < 400; ++i) {
    orders.insert(Order(shuffle, 3));
    ASSERT_EQ(3U, orders.begin()->size());
  }
  EXPECT_EQ(6U, orders.size());
}

TEST_F(ShuffleTest, SeedsRepeat) {
  Shuffle one(5), again(5), other(6);
  const auto order = Order(one, 20);
  EXPECT_EQ(order, Order(again, 20));
  EXPECT_NE(order, Order(other, 20));
}

TEST_F(ShuffleTest, SomeStartBesideOthersAndAllDoInTheEnd) {
  Shuffle shuffle(1);
  int num_beside = 0;
  for (int i = 0; i < 100; ++i) {
    const uint64_t begin_ns = now_ns_;
    shuffle.Add(NewTask(), now_ns_);
    shuffle.Add(NewTask(), now_ns_);
    ASSERT_NE(nullptr, Wait(shuffle));
    const uint64_t first_ns = now_ns_;
    ASSERT_NE(nullptr, Wait(shuffle));  // though the first never ended
    num_beside += now_ns_ == first_ns ? 1 : 0;
    EXPECT_LE(now_ns_ - begin_ns, Shuffle::kLatestNs + Shuffle::kPatienceNs);
    shuffle.OnEnd(now_ns_);
    shuffle.OnEnd(now_ns_);
  }
  EXPECT_GT(num_beside, 0);
  EXPECT_LT(num_beside, 50);
}

TEST_F(ShuffleTest, LateOnesLetOthersPassThatComeAfterThem) {
  Shuffle shuffle(1);
  int num_overtaken = 0;
  for (int i = 0; i < 200; ++i) {
    const auto first = NewTask();
    shuffle.Add(first, now_ns_);
    uint64_t wake_ns = 0;
    auto task = shuffle.Next(now_ns_, &wake_ns);
    if (task == nullptr) {
      EXPECT_EQ(now_ns_ + Shuffle::kQuietNs, wake_ns);
      now_ns_ += Shuffle::kQuietNs - 1;
      shuffle.Add(NewTask(), now_ns_);
      task = Wait(shuffle);
      num_overtaken += task != first ? 1 : 0;
      shuffle.OnEnd(now_ns_);
      Wait(shuffle);
    }
    shuffle.OnEnd(now_ns_);
  }
  EXPECT_GT(num_overtaken, 20);
}

TEST_F(ShuffleTest, NothingToStart) {
  Shuffle shuffle(1);
  uint64_t wake_ns = 0;
  EXPECT_EQ(nullptr, shuffle.Next(now_ns_, &wake_ns));
  EXPECT_EQ(Shuffle::kNever, wake_ns);
}

}  // namespace
}  // namespace tally::sim_driver
