#include "server/ctl/top/page.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/ctl/top/screen.h"
#include "tests/server/ctl/top/samples.h"

namespace tally::cli {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

std::string TextOf(const std::vector<PageLine>& page) {
  std::string text;
  for (const PageLine& line : page) {
    for (const Piece& piece : line) text += piece.text;
    text += "\n";
  }
  return text;
}

TopView View(size_t num_rows, size_t num_gpus = 1) {
  TopSample before = SampleAt(10), now = SampleAt(12, "cuda 13000");
  now.gpus.resize(num_gpus);
  for (size_t i = 0; i < num_gpus; ++i) {
    now.gpus[i].index = static_cast<uint32_t>(i);
    now.gpus[i].name = "NVIDIA H100 80GB HBM3";
    now.gpus[i].utilization_percent = 63;
    now.gpus[i].used_bytes = 13ull << 30;
    now.gpus[i].total_bytes = 80ull << 30;
    now.gpus[i].celsius = 54;
    now.gpus[i].watts = 412;
  }
  for (uint64_t id = 1; id <= num_rows; ++id) {
    AddSession(id, "train", id == 1, &before);
    auto* session = AddSession(id, "train-" + std::string(id % 40, 'x'), id == 1, &now);
    session->set_kernel_launches(id * 24'690);
    SetBusy(100'000'000, session);
    session->set_device_memory_bytes(id << 30);
    if (id == 1) session->set_slo("p99=2ms"), session->set_slo_observed_ns(2'500'000);
  }
  return TopViewOf(&before, now, false);
}

std::vector<PageLine> PageAt(const TopView& view, size_t columns, size_t lines, TopState* state) {
  return PageOf(view, {columns, lines}, "12:34:56", "", state);
}

TEST(TopPage, HasAllThatMattersAt80Columns) {
  TopState state;
  const std::string text = TextOf(PageAt(View(3), 80, 24, &state));
  for (const char* header :
       {"SESSION", "TENANT", "CLASS", "WT/LVL", "BUSY%", "MEMORY", "LAUNCH/s", "HELD/s", "LATENCY"})
    EXPECT_THAT(text, HasSubstr(header));
  EXPECT_THAT(text, HasSubstr("p99 2.5/2ms"));
  EXPECT_THAT(text, HasSubstr("12.3k"));
  EXPECT_THAT(text, HasSubstr("63 %  13.0 GiB of 80.0 GiB   54 C   412 W"));
  EXPECT_THAT(text, HasSubstr("sessions: 1 high, 2 best-effort  executors 0"));
  EXPECT_THAT(text, HasSubstr("q quit"));
}

TEST(TopPage, WiderTerminalsShowMoreColumns) {
  TopState state;
  EXPECT_THAT(TextOf(PageAt(View(3), 80, 24, &state)), Not(HasSubstr("UID")));
  EXPECT_THAT(TextOf(PageAt(View(3), 120, 24, &state)), HasSubstr("UID"));
}

// Of any size, with any prompt: not a line, not a column more than there is.
TEST(TopPage, FitsEverySize) {
  using Prompt = TopState::Prompt;
  for (const size_t num_rows : {0, 1, 50}) {
    const TopView view = View(num_rows, 9);
    for (const Prompt prompt : {Prompt::kNone, Prompt::kRank, Prompt::kClass, Prompt::kHelp}) {
      for (size_t columns = 1; columns < 130; columns += 3) {
        for (const size_t lines : {1, 2, 3, 5, 8, 13, 24, 60}) {
          TopState state;
          state.prompt = prompt;
          if (num_rows > 0) state.asked = view.rows[0];
          const auto page = PageAt(view, columns, lines, &state);
          ASSERT_LE(page.size(), lines);
          for (const PageLine& line : page) {
            size_t width = 0;
            for (const Piece& piece : line) width += piece.text.size();
            ASSERT_LE(width, columns) << columns << "x" << lines << ": " << TextOf({line});
          }
        }
      }
    }
  }
}

TEST(TopPage, TheChosenRowIsShownWhereverItIs) {
  const TopView view = View(50);
  TopState state;
  state.selected = 50;
  bool is_shown = false;
  for (const PageLine& line : PageAt(view, 80, 24, &state)) {
    for (const Piece& piece : line) is_shown |= piece.ink == Ink::kSelected && piece.text == "     50";
  }
  EXPECT_TRUE(is_shown);
  EXPECT_THAT(TextOf(PageAt(view, 80, 24, &state)), HasSubstr("to 50 of 50"));
}

TEST(TopPage, ManyGpusLeaveRoomForSessions) {
  TopState state;
  const std::string text = TextOf(PageAt(View(3, 16), 80, 24, &state));
  EXPECT_THAT(text, HasSubstr("and 11 more GPUs"));
  EXPECT_THAT(text, HasSubstr("train-xxx"));
}

TEST(TopPage, SaysWhatIsWrongAndWhatIsAsked) {
  TopState state;
  EXPECT_THAT(TextOf(PageOf(View(1), {80, 24}, "", "4s old: no tallyd answers", &state)),
              HasSubstr("4s old: no tallyd"));
  EXPECT_THAT(TextOf(PageAt(View(0), 80, 24, &state)), HasSubstr("no sessions: 'tally-run PROGRAM' makes one"));
  state.prompt = TopState::Prompt::kRank;
  state.asked = View(2).rows.at(1);
  state.typed = "25";
  EXPECT_THAT(TextOf(PageAt(View(2), 80, 24, &state)), HasSubstr("weight of session 2 (train-xx), 1 to 10000: 25_"));
}

TEST(TopPage, AMissedObjectiveHasTheInkOfWhatIsBad) {
  TopState state;
  state.selected = 2;
  bool is_bad = false;
  for (const PageLine& line : PageAt(View(2), 80, 24, &state)) {
    for (const Piece& piece : line) is_bad |= piece.ink == Ink::kBad && piece.text.starts_with("p99 2.5/2ms");
  }
  EXPECT_TRUE(is_bad);
}

TEST(TopSnapshot, HasEveryColumnAndRowAndNoControlSequence) {
  const std::string text = SnapshotOf(View(50, 9), 1000, "2026-11-24T12:00:00+0000");
  EXPECT_THAT(text, StartsWith("2026-11-24T12:00:00+0000  tallyd 0.1.0, driver cuda 13000"));
  for (size_t column = 0; column < kNumTopColumns; ++column)
    EXPECT_THAT(text, HasSubstr(KindOf(static_cast<TopColumn>(column)).header));
  EXPECT_THAT(text, HasSubstr("GPU 8 "));
  EXPECT_THAT(text, HasSubstr("train-" + std::string(39, 'x')));
  for (const char letter : text) EXPECT_TRUE(letter == '\n' || (letter >= ' ' && letter <= '~')) << int{letter};
  EXPECT_THAT(text, Not(HasSubstr(" \n")));
}

TEST(Drawn, ErasesBehindTheTextButNeverTheLastColumn) {
  EXPECT_EQ(Drawn({{"abc"}}, 0, 4, true), "\x1b[1;1Habc\x1b[K");
  EXPECT_EQ(Drawn({{"abcd"}}, 4, 4, true), "\x1b[5;1Habcd");
  EXPECT_EQ(Drawn({}, 1, 4, true), "\x1b[2;1H\x1b[K");
}

TEST(Drawn, UsesColorsOnlyWhereTheyMayBeUsed) {
  EXPECT_THAT(Drawn({{"x", Ink::kBad}}, 0, 80, true), HasSubstr("\x1b[1;31mx\x1b[0m"));
  EXPECT_THAT(Drawn({{"x", Ink::kBad}}, 0, 80, false), HasSubstr("\x1b[1mx\x1b[0m"));
  EXPECT_EQ(Drawn({{"x", Ink::kGood}}, 0, 80, false), "\x1b[1;1Hx\x1b[K");
}

TEST(Terminals, WhatTheyCanIsInTheirNames) {
  EXPECT_FALSE(CanShowPages(nullptr) || CanShowPages("") || CanShowPages("dumb"));
  EXPECT_TRUE(CanShowPages("vt100"));
  EXPECT_TRUE(HasColors("xterm-256color", nullptr));
  EXPECT_TRUE(HasColors("screen", "")) << "empty is as not set";
  EXPECT_FALSE(HasColors("xterm-256color", "1"));
  EXPECT_FALSE(HasColors("vt220", nullptr));
  EXPECT_FALSE(HasColors("linux-m", nullptr));
}

}  // namespace
}  // namespace tally::cli
