// The table of docs/metrics.md is that of the sources, row by row. TALLY_UPDATE_GOLDEN=1 writes it.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>

#include "server/daemon/metrics/metrics_list.h"

namespace tally::server {
namespace {

constexpr const char* kPage = "docs/metrics.md";
const std::string kHead = "| metric | type | unit | labels | meaning |\n|---|---|---|---|---|\n";

std::string Table() {
  std::string table;
  for (const MetricRow& row : MetricsList()) {
    const char* kinds[] = {"counter", "gauge", "histogram"};
    table += fmt::format("| `{}` | {} | {} | {} | {} |\n", row.name, kinds[static_cast<size_t>(row.kind)], row.unit,
                         *row.labels == '\0' ? "-" : row.labels, row.sentence);
  }
  return table;
}

TEST(MetricsPage, HasTheTable) {
  std::stringstream read;
  read << std::ifstream(kPage).rdbuf();
  const std::string page = read.str();
  const size_t head = page.find(kHead);
  ASSERT_NE(head, std::string::npos) << kPage << " is to have a table with the head\n" << kHead;
  const size_t begin = head + kHead.size(), end = page.find("\n\n", begin) + 1;
  const std::string table = Table();
  if (std::getenv("TALLY_UPDATE_GOLDEN") != nullptr) {
    std::ofstream(kPage) << page.substr(0, begin) << table << page.substr(end);
    return;
  }
  EXPECT_EQ(page.substr(begin, end - begin), table) << "TALLY_UPDATE_GOLDEN=1 in front of this test writes it";
}

}  // namespace
}  // namespace tally::server
