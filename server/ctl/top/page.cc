#include "server/ctl/top/page.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "base/printable.h"
#include "server/ctl/column_widths.h"
#include "server/ctl/table.h"

namespace tally::cli {
namespace {

constexpr const char* kHelp[] = {
    "q           quit",
    "space       pause, and go on",
    "s S         sort by the next column, the one before (also > <)",
    "r           the other way round",
    "up down     choose a row (also k j, page up, page down, home, end)",
    "w           set the weight of the chosen best-effort row, the level of a high-priority one",
    "p           set its class",
    "t           rows are tenants, or sessions again",
    "h           this page; any key leaves it",
    "",
    "BUSY%       of the time it had work on a GPU, whoever else had too; '-': not known",
    "HELD/s      launches and copies that had to wait for admission",
    "LATENCY     of services with an objective: the last seen, and the wanted one",
    "?           behind a number: its executor does not answer, figures are the last known ones",
};

std::string Rate(const std::optional<double>& rate) { return rate ? FormatRate(*rate) : "-"; }

void Cut(size_t columns, PageLine* line) {
  size_t left = columns;
  for (Piece& piece : *line) {
    if (piece.text.size() > left) piece.text.resize(left);
    left -= piece.text.size();
  }
  std::erase_if(*line, [](const Piece& piece) { return piece.text.empty(); });
}

// "|||||     "
std::string Bar(uint32_t percent, size_t width) {
  const size_t full = std::min<size_t>((percent * width + 50) / 100, width);
  return std::string(full, '|') + std::string(width - full, ' ');
}

PageLine GpuLine(const GpuReading& gpu, size_t columns) {
  std::string tail;
  if (gpu.used_bytes && gpu.total_bytes)
    tail += fmt::format("  {} of {}", FormatBytes(*gpu.used_bytes), FormatBytes(*gpu.total_bytes));
  if (gpu.celsius) tail += fmt::format("  {:>3} C", *gpu.celsius);
  if (gpu.watts) tail += fmt::format("  {:>4} W", *gpu.watts);
  std::string name = fmt::format("GPU {} {}", gpu.index, Printable(gpu.name));
  if (!gpu.utilization_percent) return {{name + tail}};
  const std::string percent = fmt::format(" {:>3} %", *gpu.utilization_percent);
  constexpr size_t kBrackets = 2, kLeastBar = 8, kMostBar = 40, kLeastName = 14;
  const size_t fixed = percent.size() + tail.size() + kBrackets + 1;
  const size_t room = columns > fixed ? columns - fixed : 0;
  const size_t name_width =
      std::clamp(room > kLeastBar ? room - kLeastBar : 0, kLeastName, std::max(name.size(), kLeastName));
  name = fmt::format("{:<{}.{}}", name, name_width, name_width);
  const size_t bar_width = std::clamp(room > name_width ? room - name_width : 0, kLeastBar, kMostBar);
  return {{name + " ["}, {Bar(*gpu.utilization_percent, bar_width), Ink::kGood}, {"]" + percent + tail}};
}

std::vector<PageLine> HeadOf(const TopView& view, size_t columns, size_t most_gpus) {
  std::vector<PageLine> lines;
  const size_t num_shown = view.gpus.size() <= most_gpus ? view.gpus.size() : std::max<size_t>(most_gpus, 1) - 1;
  for (size_t i = 0; i < num_shown; ++i) lines.push_back(GpuLine(view.gpus[i], columns));
  if (num_shown < view.gpus.size()) lines.push_back({{fmt::format("and {} more GPUs", view.gpus.size() - num_shown)}});
  const TopTotals& totals = view.totals;
  lines.push_back({{fmt::format("sessions: {} high, {} best-effort  executors {}  launches/s {}  held/s {}",
                                totals.num_high, totals.num_best_effort, totals.num_executors,
                                Rate(totals.launches_per_s), Rate(totals.held_per_s))}});
  return lines;
}

struct Grid {
  std::vector<size_t> widths;  // 0: not shown
  std::vector<std::vector<std::string>> cells;
};

Grid GridOf(const TopView& view, size_t columns) {
  Grid grid;
  std::vector<ColumnNeed> needs(kNumTopColumns);
  for (size_t i = 0; i < kNumTopColumns; ++i) {
    const auto column = static_cast<TopColumn>(i);
    needs[i] = {std::string_view(KindOf(column).header).size(), 0, KindOf(column).rank};
  }
  for (const TopRow& row : view.rows) {
    auto& cells = grid.cells.emplace_back();
    for (size_t i = 0; i < kNumTopColumns; ++i) {
      cells.push_back(CellOf(static_cast<TopColumn>(i), row));
      needs[i].width = std::max(needs[i].width, cells.back().size());
    }
  }
  for (size_t i = 0; i < kNumTopColumns; ++i) {
    const size_t least = KindOf(static_cast<TopColumn>(i)).least;
    needs[i].least = least == 0 ? needs[i].width : least;
  }
  grid.widths = FitColumns(needs, 1, columns);
  return grid;
}

std::string Aligned(const std::string& cell, size_t width, bool is_right) {
  return is_right ? fmt::format("{:>{}.{}}", cell, width, width) : fmt::format("{:<{}.{}}", cell, width, width);
}

PageLine HeaderLine(const Grid& grid, const TopState* state) {
  PageLine line;
  for (size_t i = 0; i < kNumTopColumns; ++i) {
    if (grid.widths[i] == 0) continue;
    const auto column = static_cast<TopColumn>(i);
    if (!line.empty()) line.push_back({" ", Ink::kHeader});
    line.push_back({Aligned(KindOf(column).header, grid.widths[i], KindOf(column).is_right),
                    state != nullptr && state->sort == column ? Ink::kSortedHeader : Ink::kHeader});
  }
  return line;
}

Ink InkOf(TopColumn column, const TopRow& row) {
  if (row.is_stale) return Ink::kWarning;
  if (column == TopColumn::kLatency && row.observed_ns > 0) return row.is_objective_missed ? Ink::kBad : Ink::kGood;
  if (column == TopColumn::kClass && row.is_high) return Ink::kHigh;
  return Ink::kPlain;
}

PageLine RowLine(const Grid& grid, size_t place, const TopRow& row, bool is_selected) {
  PageLine line;
  for (size_t i = 0; i < kNumTopColumns; ++i) {
    if (grid.widths[i] == 0) continue;
    const auto column = static_cast<TopColumn>(i);
    if (!line.empty()) line.push_back({" ", is_selected ? Ink::kSelected : Ink::kPlain});
    line.push_back({Aligned(grid.cells[place][i], grid.widths[i], KindOf(column).is_right),
                    is_selected ? Ink::kSelected : InkOf(column, row)});
  }
  return line;
}

// What is asked, said or wrong; else by what the rows are sorted.
PageLine StatusLine(const TopView& view, const std::string& problem, const TopState& state) {
  if (state.prompt == TopState::Prompt::kRank) {
    return {{fmt::format("{} of {}, {}: {}_  (enter: set, escape: leave)", state.asked.is_high ? "level" : "weight",
                         NameOf(state.asked), state.asked.is_high ? "0 to 7" : "1 to 10000", state.typed),
             Ink::kWarning}};
  }
  if (state.prompt == TopState::Prompt::kClass)
    return {{fmt::format("class of {}: h high, b best-effort  (escape: leave)", NameOf(state.asked)), Ink::kWarning}};
  if (!state.message.empty()) return {{Printable(state.message), Ink::kWarning}};
  if (!problem.empty()) return {{Printable(problem), Ink::kBad}};
  if (view.rows.empty()) return {{"no sessions: 'tally-run PROGRAM' makes one"}};
  const size_t last = std::min(state.first_row + state.num_visible, view.rows.size());
  return {{fmt::format("{}{} {} to {} of {}, by {}{}", state.is_paused ? "PAUSED  " : "",
                       state.is_by_tenant ? "tenants" : "sessions", state.first_row + 1, last, view.rows.size(),
                       KindOf(state.sort).header, state.is_reversed ? ", reversed" : ""),
           state.is_paused ? Ink::kWarning : Ink::kPlain}};
}

PageLine TitleLine(const TopView& view, size_t columns, const std::string& clock) {
  std::string title = "tallyctl top - " + Printable(view.daemon);
  const size_t room = columns > clock.size() + 1 ? columns - clock.size() - 1 : 0;
  title.resize(room, ' ');
  return {{title + " " + clock, Ink::kTitle}};
}

}  // namespace

std::vector<PageLine> PageOf(const TopView& view, const PageSize& size, const std::string& clock,
                             const std::string& problem, TopState* state) {
  std::vector<PageLine> page = {TitleLine(view, size.columns, clock)};
  if (state->prompt == TopState::Prompt::kHelp) {
    for (const char* line : kHelp) page.push_back({{line}});
  } else {
    for (PageLine& line : HeadOf(view, size.columns, std::max<size_t>(size.lines / 4, 1)))
      page.push_back(std::move(line));
    constexpr size_t kStatusHeaderAndKeys = 3;
    const size_t taken = page.size() + kStatusHeaderAndKeys;
    state->num_visible = size.lines > taken ? size.lines - taken : 0;
    Scroll(view, state);
    page.push_back(StatusLine(view, problem, *state));
    const Grid grid = GridOf(view, size.columns);
    page.push_back(HeaderLine(grid, state));
    const size_t selected = SelectedPlace(view, *state);
    const size_t last = std::min(state->first_row + state->num_visible, view.rows.size());
    for (size_t place = state->first_row; place < last; ++place)
      page.push_back(RowLine(grid, place, view.rows[place], place == selected));
    page.resize(std::max(page.size(), size.lines > 0 ? size.lines - 1 : 0));
    page.push_back({{"q quit  h help  s sort  w weight  p class  t tenants  space pause  r reverse"}});
  }
  if (page.size() > size.lines) page.resize(size.lines);
  for (PageLine& line : page) Cut(size.columns, &line);
  return page;
}

std::string SnapshotOf(const TopView& view, size_t columns, const std::string& clock) {
  std::vector<PageLine> lines = {{{fmt::format("{}  {}", clock, Printable(view.daemon))}}};
  for (PageLine& line : HeadOf(view, std::min<size_t>(columns, 120), view.gpus.size()))
    lines.push_back(std::move(line));
  const Grid grid = GridOf(view, columns);
  if (!view.rows.empty()) lines.push_back(HeaderLine(grid, nullptr));
  for (size_t place = 0; place < view.rows.size(); ++place)
    lines.push_back(RowLine(grid, place, view.rows[place], false));
  std::string text;
  for (PageLine& line : lines) {
    Cut(columns, &line);
    std::string plain;
    for (const Piece& piece : line) plain += piece.text;
    text += plain.substr(0, plain.find_last_not_of(' ') + 1) + "\n";
  }
  return text;
}

}  // namespace tally::cli
