#include "scheduler/slo.h"

#include <gtest/gtest.h>

#include "scheduler/latency_histogram.h"

namespace tally::scheduler {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::nanoseconds;

TEST(Slo, ReadsWhatUsersWrite) {
  EXPECT_EQ(*ParseSlo("p99=2ms"), (Slo{99, milliseconds(2)}));
  EXPECT_EQ(*ParseSlo("p99.9=0.5s"), (Slo{99.9, milliseconds(500)}));
  EXPECT_EQ(*ParseSlo("p50=750us"), (Slo{50, microseconds(750)}));
  EXPECT_EQ(*ParseSlo("p1=1000ns"), (Slo{1, microseconds(1)}));
}

TEST(Slo, SaysWhatIsWrong) {
  const std::pair<const char*, const char*> kWrong[] = {{"", "does not begin with p"},
                                                        {"99=2ms", "does not begin with p"},
                                                        {"p=2ms", "no number after the p"},
                                                        {"pp99=2ms", "no number after the p"},
                                                        {"p0=2ms", "between 1 and 99.99"},
                                                        {"p100=2ms", "between 1 and 99.99"},
                                                        {"p99", "no = after"},
                                                        {"p99:2ms", "no = after"},
                                                        {"p99=", "no number after the ="},
                                                        {"p99=ms", "no number after the ="},
                                                        {"p99=-2ms", "no number after"},
                                                        {"p99=2", "has no unit"},
                                                        {"p99=2m", "'m' is no unit"},
                                                        {"p99=2ms ", "'ms ' is no unit"},
                                                        {"p99=2 ms", "' ms' is no unit"},
                                                        {"p99=0ms", "not between 1us and 3600s"},
                                                        {"p99=1h", "'h' is no unit"},
                                                        {"p99=999ns", "not between"},
                                                        {"p99=1e9s", "'e9s' is no unit"},
                                                        {"p99=99999999999999999999999s", "not between"},
                                                        {"p9.9.9=2ms", "no number"},
                                                        {"p99=2..ms", "no number"},
                                                        {"pinf=2ms", "no number"},
                                                        {"p99=nanms", "no number"}};
  for (const auto& [text, why] : kWrong) {
    const Result<Slo> slo = ParseSlo(text);
    ASSERT_FALSE(slo.has_value()) << text;
    EXPECT_EQ(slo.error().code(), StatusCode::kInvalidArgument);
    EXPECT_NE(slo.error().message().find(why), std::string::npos) << slo.error().message();
    EXPECT_NE(slo.error().message().find("p99=2ms"), std::string::npos) << "an example";
  }
}

TEST(Slo, TextAndBack) {
  for (const char* text : {"p99=2ms", "p99.9=500us", "p50=1.5s", "p95=1us", "p99.99=3600s"}) {
    const Slo slo = *ParseSlo(text);
    EXPECT_EQ(*ParseSlo(ToText(slo)), slo) << ToText(slo);
  }
  EXPECT_EQ(ToText({99, milliseconds(2)}), "p99=2ms");
}

TEST(LatencyHistogram, QuantilesAreAtMostThreePercentTooHigh) {
  for (const int64_t unit : {1, 7, 1000, 123'456, 3'000'000}) {
    LatencyHistogram histogram;
    for (int64_t i = 1; i <= 1000; ++i) histogram.Add(nanoseconds(i * unit));
    for (const double percentile : {1.0, 50.0, 99.0, 99.9, 100.0}) {
      const auto exact = static_cast<double>(static_cast<int64_t>(percentile * 10) * unit);
      const auto estimate = static_cast<double>(histogram.Quantile(percentile).count());
      EXPECT_GE(estimate, exact) << percentile << " of " << unit;
      EXPECT_LE(estimate, exact * 1.032) << percentile << " of " << unit;
    }
  }
}

TEST(LatencyHistogram, TakesAnything) {
  LatencyHistogram histogram;
  EXPECT_EQ(histogram.Quantile(99), nanoseconds(0));
  histogram.Add(nanoseconds(-5));
  EXPECT_EQ(histogram.Quantile(99), nanoseconds(0));
  histogram.Add(nanoseconds::max());
  EXPECT_GT(histogram.Quantile(100), std::chrono::hours(2));
  histogram.Clear();
  EXPECT_EQ(histogram.num(), 0u);
}

}  // namespace
}  // namespace tally::scheduler
