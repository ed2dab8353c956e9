// The table of figures keeps its own rules, and each row its own values.
#include "proto/control/session_figures.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <type_traits>
#include <vector>

namespace tally::control {
namespace {

// Every value another one.
SessionFigures Distinct() {
  SessionFigures figures{};
  for (const Figure figure : kAllFigures) {
    for (size_t i = 0; i < figure.num_entries(); ++i) figures.entries(figure)[i] = 1000 * (figure.index() + 1) + i;
  }
  return figures;
}

TEST(SessionFigures, NamesSayTheUnitAndFamiliesAgree) {
  static_assert(std::is_standard_layout_v<SessionFigures> && std::is_trivially_copyable_v<SessionFigures>);
  std::set<std::string> names;
  std::map<std::string, FigureFamily> families;
  std::set<std::pair<std::string, std::string>> samples;
  for (const FigureRow& row : kSessionFigures) {
    const std::string name = row.name, unit = row.family.unit, family = row.family.name, labels = row.family.labels;
    EXPECT_TRUE(names.insert(name).second) << name << " twice";
    EXPECT_EQ(name.find_first_not_of("abcdefghijklmnopqrstuvwxyz_"), std::string::npos) << name;
    if (family.empty()) continue;
    EXPECT_EQ(name.ends_with("_ns"), unit == "seconds" && row.entries != FigureEntries::kByStopTime) << name;
    EXPECT_EQ(name.ends_with("_bytes"), unit == "bytes") << name;
    EXPECT_TRUE(samples.emplace(family, row.label).second) << name << ": another row is the same sample";
    const FigureFamily& first = families.emplace(family, row.family).first->second;
    EXPECT_EQ(unit, first.unit) << name;
    EXPECT_STREQ(row.family.sentence, first.sentence) << name;
    EXPECT_EQ(labels, first.labels) << name;
    EXPECT_TRUE(labels.starts_with("tenant, uid")) << name;
    const auto num_labels = std::ranges::count(labels, ',') + 1;
    const bool is_of_tenant = row.kind != FigureKind::kOfObjective && row.entries != FigureEntries::kByPreemptibility &&
                              row.entries != FigureEntries::kByGpu;
    if (!is_of_tenant) continue;
    EXPECT_EQ(num_labels, *row.label == '\0' && EntryNames(row.entries).empty() ? 2 : 3) << name;
  }
}

TEST(SessionFigures, EachRowHasItsOwnValues) {
  const SessionFigures figures = Distinct();
  std::set<uint64_t> values(std::begin(figures.values), std::end(figures.values));
  EXPECT_EQ(values.size(), kNumFigureValues) << "two rows share a value, or one belongs to no row";
  EXPECT_FALSE(values.contains(0));
  EXPECT_EQ(figures["kernel_launches"], figures.values[0]);
  EXPECT_EQ(figures["slo_caution"], figures.values[kNumFigureValues - 1]);
  EXPECT_EQ(figures.entries("preemptibility_ns").size(), kNumPreemptibilities);
  EXPECT_EQ(figures.entries("stops").size(), kStopBuckets);
  EXPECT_EQ(figures["stop_ns"], figures.entries("stops").back() - (kStopBuckets - 1) + 1000) << "the row behind";
}

TEST(SessionFigures, AllAddUpButWhatIsOfOneSession) {
  SessionFigures sum = Distinct();
  Accumulate(sum, Distinct());
  Accumulate(sum, Distinct());
  for (const Figure figure : kAllFigures) {
    const uint64_t times = figure.row().kind == FigureKind::kOfObjective ? 1 : 3;
    for (size_t i = 0; i < figure.num_entries(); ++i) {
      EXPECT_EQ(sum.entries(figure)[i], times * (1000 * (figure.index() + 1) + i)) << figure.row().name << " " << i;
    }
  }
}

// What tallyd and an executor compare before one believes the other's values.
TEST(SessionFigures, AnotherTableHasAnotherHash) {
  const std::vector<FigureRow> rows(kSessionFigures.begin(), kSessionFigures.end());
  EXPECT_EQ(HashOfFigures(rows), kSessionFiguresHash);
  std::set<uint32_t> hashes = {kSessionFiguresHash};
  const auto changed = [&](auto change) {
    auto other = rows;
    change(other);
    return hashes.insert(HashOfFigures(other)).second;
  };
  EXPECT_TRUE(changed([](auto& other) { std::swap(other[3], other[4]); })) << "order";
  EXPECT_TRUE(changed([](auto& other) { other[3].name = "somewhere_to_host_bytes"; })) << "name";
  EXPECT_TRUE(changed([](auto& other) { other[3].entries = FigureEntries::kByPreemptibility; })) << "number of values";
  EXPECT_TRUE(changed([](auto& other) { other[3].entries = FigureEntries::kByWindowEnd; })) << "names of values";
  EXPECT_TRUE(changed([](auto& other) { other.pop_back(); })) << "one is gone";
  EXPECT_TRUE(changed([](auto& other) { other.push_back({"frobnications", FigureKind::kCounter, {}}); })) << "one more";
}

}  // namespace
}  // namespace tally::control
