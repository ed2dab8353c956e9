// Configuration files that nobody would write. Whatever is in the file: it is refused with a sentence, or what comes
// out of it keeps the promises that the rest of tallyd relies on.
//
// Here a few thousand; `tools/fuzz config SECONDS` goes on from TALLY_FUZZ_SEED for TALLY_FUZZ_SECONDS.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <map>
#include <random>

#include "server/daemon/config.h"
#include "server/daemon/reload.h"

namespace tally::server {
namespace {

uint64_t FromEnvironment(const char* name, uint64_t otherwise) {
  const char* text = std::getenv(name);
  return text != nullptr ? std::strtoull(text, nullptr, 10) : otherwise;
}

std::string Sample() {
  std::ifstream file("deploy/tallyd.json");
  return {std::istreambuf_iterator<char>(file), {}};
}

class Writer {
 public:
  explicit Writer(uint64_t seed) : random_(seed) {}

  std::string File() {
    switch (Below(4)) {
      case 0:
        return Changed(sample_);
      case 1:
        return Changed(Object());
      default:
        return Object();
    }
  }

 private:
  uint64_t Below(uint64_t bound) { return random_() % bound; }

  std::string Object() {
    const std::vector<std::string> keys = ConfigKeys();
    std::string text = "{";
    for (uint64_t i = 0, count = Below(6); i < count; ++i) {
      const std::string& key = keys[Below(keys.size())];
      text += fmt::format("{}\"{}{}\": {}", i == 0 ? "" : ",\n", key, Below(30) == 0 ? "x" : "", Value(2));
    }
    return text + "}";
  }

  std::string Value(int depth) {
    static const char* const kValues[] = {"0",
                                          "1",
                                          "-1",
                                          "4294967295",
                                          "4294967296",
                                          "18446744073709551615",
                                          "18446744073709551616",
                                          "1e308",
                                          "1e999",
                                          "-0.0",
                                          "31.6",
                                          "1000000",
                                          "3600000",
                                          "3600001",
                                          "true",
                                          "false",
                                          "null",
                                          "\"\"",
                                          "\"any\"",
                                          "\"auto\"",
                                          "\"off\"",
                                          "\"none\"",
                                          "\"all\"",
                                          "\"gate\"",
                                          "\"high\"",
                                          "\"best-effort\"",
                                          "\"sim\"",
                                          "\"cuda\"",
                                          "\"look-ahead\"",
                                          "\"tally\"",
                                          "\"fair\"",
                                          "\"100ms\"",
                                          "\"99999999999999999999s\"",
                                          "\"1ns\"",
                                          "\"-1s\"",
                                          "\"/\"",
                                          "\"/x\"",
                                          "\"/x/\"",
                                          "\"/x/y.sock\"",
                                          "\"/x/clients/y.sock\"",
                                          "\"/clients/y\"",
                                          "\"clients/y\"",
                                          "\"x/y\"",
                                          "\"//\"",
                                          "\"127.0.0.1:9464\"",
                                          "\":1\"",
                                          "\"a:99999\"",
                                          "\"a:999999999999999\"",
                                          "\"a:\"",
                                          "[]",
                                          "[0]",
                                          "[1,2,3]",
                                          "[-1]",
                                          "[4294967296]",
                                          "[\"a\"]",
                                          "{}",
                                          "\"\\u0000\"",
                                          "\"/x\\u0000/y\"",
                                          "\"\\ud800\"",
                                          "\"\xff\xfe\""};
    if (depth > 0 && Below(12) == 0) return fmt::format("[{},{}]", Value(depth - 1), Value(depth - 1));
    if (Below(20) == 0) return fmt::format("\"/{}/y.sock\"", std::string(Below(200), 'd'));
    return kValues[Below(std::size(kValues))];
  }

  std::string Changed(std::string text) {
    for (uint64_t i = 0, count = 1 + Below(4); i < count && !text.empty(); ++i) {
      const size_t at = Below(text.size());
      switch (Below(4)) {
        case 0:
          text[at] = static_cast<char>(random_());
          break;
        case 1:
          text.erase(at, 1 + Below(8));
          break;
        case 2:
          text.insert(at, text.substr(Below(text.size()), Below(40)));
          break;
        default:
          text.insert(at, 1, "{}[]\",:0/*\n"[Below(11)]);
      }
    }
    return text;
  }

  std::mt19937_64 random_;
  const std::string sample_ = Sample();
};

void ExpectSound(const DaemonConfig& config) {
  EXPECT_TRUE(config.socket.starts_with('/'));
  EXPECT_TRUE(config.socket.starts_with(config.runtime_dir + "/"));
  EXPECT_EQ(config.socket.find('/', config.runtime_dir.size() + 1), std::string::npos) << config.socket;
  EXPECT_EQ(config.socket.find('\0'), std::string::npos);
  EXPECT_LE((config.runtime_dir + "/executors.sock").size(), 107u);
  EXPECT_FALSE(config.runtime_dir.empty());
  EXPECT_TRUE(config.allowed_uids && config.high_priority_uids);
  EXPECT_GE(std::min({config.max_sessions, config.max_sessions_per_user, config.max_domains_per_user}), 1u);
  EXPECT_GE(config.executor_start_limit.count(), 1);
  EXPECT_GE(config.turnaround_threshold.count(), 1000);
  EXPECT_LE(config.turnaround_threshold.count(), 1'000'000'000);
  const auto bound = config.starvation_bound.value_or(std::chrono::nanoseconds(0));
  EXPECT_TRUE(bound.count() == 0 || (bound >= kShortestStarvationBound && bound <= kLongestStarvationBound));
  EXPECT_TRUE(config.cache_directory.empty() || config.cache_directory.starts_with('/'));
  EXPECT_EQ(config.cache_directory.find('\0'), std::string::npos);
}

TEST(ConfigFuzz, IsRefusedWithASentenceOrSound) {
  const auto seconds = std::chrono::seconds(FromEnvironment("TALLY_FUZZ_SECONDS", 0));
  const uint64_t first = FromEnvironment("TALLY_FUZZ_SEED", 0);
  const auto until = std::chrono::steady_clock::now() + seconds;
  constexpr uint64_t kSeeds = 5000;
  uint64_t num_read = 0, num_sound = 0;
  std::map<std::string, uint64_t> sentences;
  uint64_t seed = first;
  for (; (seed < first + kSeeds || std::chrono::steady_clock::now() < until) && !::testing::Test::HasFailure();
       ++seed) {
    const std::string text = Writer(seed).File();
    SCOPED_TRACE("seed " + std::to_string(seed) + ": " + text);
    DaemonConfig config;
    Status status = MergeConfigJson(text, config);
    num_read += status.ok();
    if (status.ok()) status = Validate(1000, config);
    if (status.ok()) {
      ++num_sound;
      ExpectSound(config);
      DaemonConfig running;
      ASSERT_TRUE(Validate(1000, running).ok());
      EXPECT_FALSE(PlanReload(running, config).Sentence().empty());
    } else {
      EXPECT_FALSE(status.message().empty());
      EXPECT_EQ(status.message().find('\n'), std::string::npos);
      ++sentences[status.message().substr(0, status.message().find_first_of("0123456789'("))];
    }
  }
  std::printf("%lu files, %lu read, %lu sound; %zu kinds of refusals\n", seed - first, num_read, num_sound,
              sentences.size());
  EXPECT_GT(num_sound, 100u);
}

}  // namespace
}  // namespace tally::server
