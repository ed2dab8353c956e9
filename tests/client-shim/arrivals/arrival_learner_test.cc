#include "client-shim/arrivals/arrival_learner.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <random>

namespace tally::client_shim {
namespace {

constexpr uint64_t kMs = 1'000'000;
constexpr uint64_t kUs = 1'000;

// What became of what was expected at one site or all.
struct Score {
  int announced = 0;
  int right = 0;   // work began within the window
  int needed = 0;  // requests that had work
  double precision() const { return announced == 0 ? 1 : static_cast<double>(right) / announced; }
  double recall() const { return needed == 0 ? 1 : static_cast<double>(right) / needed; }
};

// A program's requests, one after another. `lead`: until its work begins; none: it has none.
class Trace {
 public:
  explicit Trace(uint64_t seed = 1) : random_(seed) {}

  void Request(uint64_t site, std::optional<uint64_t> lead_ns, Score* score = nullptr) {
    const auto window = learner_.OnWake(site, now_ns_);
    if (lead_ns) learner_.OnWorkBegun(now_ns_ + *lead_ns);
    if (score != nullptr) {
      score->needed += lead_ns ? 1 : 0;
      score->announced += window ? 1 : 0;
      const bool is_right =
          window && lead_ns && now_ns_ + *lead_ns >= window->from_ns && now_ns_ + *lead_ns <= window->until_ns;
      score->right += is_right ? 1 : 0;
    }
    now_ns_ += lead_ns.value_or(0) + kMs + random_() % (8 * kMs);
  }
  // Around `middle`, by a tenth.
  uint64_t Near(uint64_t middle) { return middle - middle / 10 + random_() % (middle / 5); }
  bool OneOf(int number) { return random_() % static_cast<uint64_t>(number) == 0; }

  ArrivalLearner learner_;
  uint64_t now_ns_ = 1'000 * kMs;

 private:
  std::mt19937_64 random_;
};

TEST(ArrivalLearner, ExpectsNothingUntilItHasSeenEnough) {
  Trace trace;
  Score score;
  for (int i = 0; i < ArrivalLearner::kTrained; ++i) trace.Request(2, 400 * kUs, &score);
  EXPECT_EQ(score.announced, 0);
  trace.Request(2, 400 * kUs, &score);
  EXPECT_EQ(score.announced, 1);
  EXPECT_EQ(score.right, 1);
}

TEST(ArrivalLearner, SteadyServiceIsExpectedNearlyAlways) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    Trace trace(seed);
    for (int i = 0; i < 50; ++i) trace.Request(2, trace.Near(500 * kUs));
    Score score;
    for (int i = 0; i < 1000; ++i) trace.Request(2, trace.Near(500 * kUs), &score);
    EXPECT_GT(score.precision(), 0.85) << seed;
    EXPECT_GT(score.recall(), 0.85) << seed;
  }
}

TEST(ArrivalLearner, TellsRequestsFromWhatElseComes) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    Trace trace(seed);
    Score requests, others;
    for (int i = 0; i < 2000; ++i) {
      const bool is_request = trace.OneOf(3);
      Score* const score = i < 200 ? nullptr : is_request ? &requests : &others;
      trace.Request(is_request ? 2 : 4, is_request ? std::optional(trace.Near(400 * kUs)) : std::nullopt, score);
    }
    EXPECT_EQ(others.announced, 0) << seed;
    EXPECT_GT(requests.recall(), 0.85) << seed;
  }
}

// One place from which everything comes: half of it with work. Half in vain is too much.
TEST(ArrivalLearner, SilentWhereItCannotTell) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    Trace trace(seed);
    Score score;
    for (int i = 0; i < 2000; ++i) {
      trace.Request(2, trace.OneOf(2) ? std::optional(trace.Near(400 * kUs)) : std::nullopt,
                    i < 100 ? nullptr : &score);
    }
    EXPECT_LT(score.announced, 100) << seed;
  }
}

TEST(ArrivalLearner, SilentIfTheLeadCouldBeAnything) {
  Trace trace;
  Score score;
  for (int i = 0; i < 1000; ++i) trace.Request(2, 200 * kUs + trace.Near(9 * kMs) % (9 * kMs), &score);
  EXPECT_EQ(score.announced, 0);
}

TEST(ArrivalLearner, SilentIfTheWorkComesAtOnce) {
  Trace trace;
  Score score;
  for (int i = 0; i < 1000; ++i) trace.Request(2, trace.Near(40 * kUs), &score);
  EXPECT_EQ(score.announced, 0);
}

TEST(ArrivalLearner, FollowsAProgramThatChanges) {
  Trace trace;
  for (int i = 0; i < 500; ++i) trace.Request(2, trace.Near(400 * kUs));
  for (int i = 0; i < 60; ++i) trace.Request(2, trace.Near(900 * kUs));
  Score score;
  for (int i = 0; i < 500; ++i) trace.Request(2, trace.Near(900 * kUs), &score);
  EXPECT_GT(score.recall(), 0.85);
  EXPECT_GT(score.precision(), 0.85);
}

TEST(ArrivalLearner, StopsSoonWhenTheWorkStops) {
  Trace trace;
  for (int i = 0; i < 500; ++i) trace.Request(2, trace.Near(400 * kUs));
  Score score;
  for (int i = 0; i < 1000; ++i) trace.Request(2, std::nullopt, &score);
  EXPECT_LE(score.announced, 14);  // three of four of the last 32, and those that are still awaited
}

TEST(ArrivalLearner, OnePlaceBeforeAnotherAreBothRight) {
  Trace trace;
  Score first;
  for (int i = 0; i < 200; ++i) {
    const auto early = trace.learner_.OnWake(2, trace.now_ns_);
    const auto late = trace.learner_.OnWake(4, trace.now_ns_ + 100 * kUs);
    trace.learner_.OnWorkBegun(trace.now_ns_ + 500 * kUs);
    EXPECT_EQ(early.has_value(), late.has_value());
    if (early) {
      EXPECT_NEAR(static_cast<double>(early->from_ns), static_cast<double>(late->from_ns), 1.0);
      ++first.announced;
    }
    trace.now_ns_ += 5 * kMs;
  }
  EXPECT_GT(first.announced, 150);
}

// What began before a wake-up and was told after it is not what the wake-up waits for.
TEST(ArrivalLearner, EarlierWorkHasAnotherCause) {
  Trace trace;
  Score score;
  for (int i = 0; i < 200; ++i) {
    trace.now_ns_ += kMs;
    const auto window = trace.learner_.OnWake(2, trace.now_ns_);
    trace.learner_.OnWorkBegun(trace.now_ns_ - 10 * kUs);
    trace.learner_.OnWorkBegun(trace.now_ns_ + 400 * kUs);
    trace.now_ns_ += 5 * kMs;
    score.announced += window ? 1 : 0;
  }
  EXPECT_GT(score.announced, 150);
}

TEST(ArrivalLearner, LaterWorkHasAnotherCause) {
  Trace trace;
  Score score;
  for (int i = 0; i < 200; ++i) trace.Request(2, ArrivalLearner::kHorizonNs + kMs, &score);
  EXPECT_EQ(score.announced, 0);
}

TEST(ArrivalLearner, ClocksThatJumpTeachNothingWrong) {
  std::mt19937_64 random(5);
  Trace trace;
  for (int i = 0; i < 2000; ++i) {
    if (i % 40 == 39) trace.now_ns_ = random() >> random() % 64;  // anywhere, backwards too
    const auto window = trace.learner_.OnWake(2, trace.now_ns_);
    if (window) {
      EXPECT_GE(window->from_ns, trace.now_ns_);
      EXPECT_LE(window->from_ns, window->until_ns);
      EXPECT_LE(window->until_ns - window->from_ns, ArrivalLearner::kWidestWindowNs);
    }
    trace.learner_.OnWorkBegun(i % 40 == 20 ? random() >> random() % 64 : trace.now_ns_ + 300 * kUs);
    trace.now_ns_ += 3 * kMs;
  }
  Score score;
  for (int i = 0; i < 200; ++i) trace.Request(2, 300 * kUs, &score);
  EXPECT_GT(score.recall(), 0.8);
}

TEST(ArrivalLearner, AClockThatJumpsBackIsNobodysMistake) {
  Trace trace;
  for (int i = 0; i < ArrivalLearner::kTrained; ++i) trace.Request(2, 400 * kUs);
  for (uint64_t i = 0; i < 8; ++i) EXPECT_TRUE(trace.learner_.OnWake(2, trace.now_ns_ + i));
  EXPECT_TRUE(trace.learner_.OnWake(2, trace.now_ns_ - 500 * kMs)) << "what was awaited has no outcome";
}

// As many sites as there are addresses: the memory is the object's, and those in use stay known.
TEST(ArrivalLearner, ManySitesTakeOneAnothersPlaces) {
  std::mt19937_64 random(3);
  Trace trace;
  for (int i = 0; i < 50; ++i) trace.Request(2, 400 * kUs);
  Score score;
  for (int i = 0; i < 500; ++i) {
    for (int other = 0; other < 3; ++other) trace.Request(random(), std::nullopt);
    trace.Request(2, 400 * kUs, &score);
  }
  EXPECT_GT(score.recall(), 0.9);
  static_assert(sizeof(ArrivalLearner) < 16 * 1024);
}

TEST(ArrivalLearner, WakeUpsWithoutEndDropTheOldest) {
  Trace trace;
  for (int i = 0; i < 1'000'000; ++i) EXPECT_FALSE(trace.learner_.OnWake(2, trace.now_ns_ + static_cast<uint64_t>(i)));
}

}  // namespace
}  // namespace tally::client_shim
