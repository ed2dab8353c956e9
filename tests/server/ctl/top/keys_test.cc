#include "server/ctl/top/keys.h"

#include <gtest/gtest.h>

namespace tally::cli {
namespace {

class TopKeys : public ::testing::Test {
 protected:
  TopKeys() {
    for (const uint64_t id : {11, 12, 13, 14, 15}) {
      TopRow row;
      row.session_ids = {id};
      row.tenant.assign(1, 't');  // "t" alone makes GCC 12 warn
      row.is_high = id == 13;
      view_.rows.push_back(row);
    }
    state_.num_visible = 2;
  }

  // All keys of `bytes`; what the last one asked for.
  TopRequest Type(std::string_view bytes) {
    TopRequest request;
    for (const KeyPress& press : KeysOf(bytes)) request = OnKey(press, view_, &state_);
    return request;
  }

  TopView view_;
  TopState state_;
};

TEST_F(TopKeys, ArrowsComeInTwoWaysAndUnknownSequencesAreOneKey) {
  for (const char* down : {"\x1b[B", "\x1bOB"}) EXPECT_EQ(KeysOf(down).at(0).key, Key::kDown);
  EXPECT_EQ(KeysOf("\x1b").at(0).key, Key::kEscape);
  for (const char* unknown : {"\x1b[15;2~", "\x1b[200~", "\x1b[", "\x1bO", "\x01", "\xc3"}) {
    const auto keys = KeysOf(unknown);
    ASSERT_EQ(keys.size(), 1u) << unknown;
    EXPECT_EQ(keys[0].key, Key::kUnknown) << unknown;
  }
  EXPECT_EQ(KeysOf("j\x1b[Aq").size(), 3u);
}

TEST_F(TopKeys, TheSelectionStaysInTheListAndOnThePage) {
  EXPECT_EQ(SelectedPlace(view_, state_), 0u);
  Type("\x1b[A");
  EXPECT_EQ(SelectedPlace(view_, state_), 0u);
  Type("jj");
  EXPECT_EQ(SelectedPlace(view_, state_), 2u);
  EXPECT_EQ(state_.first_row, 1u);
  Type("\x1b[6~\x1b[6~");
  EXPECT_EQ(SelectedPlace(view_, state_), 4u);
  EXPECT_EQ(state_.first_row, 3u);
  Type("\x1b[H");
  EXPECT_EQ(state_.first_row, 0u);
  view_.rows.clear();
  Type("j\x1b[F\x1b[5~");
  EXPECT_EQ(SelectedPlace(view_, state_), 0u);
}

TEST_F(TopKeys, TheSelectionIsASessionAndNoPlace) {
  Type("jj");
  std::swap(view_.rows[0], view_.rows[2]);
  EXPECT_EQ(SelectedPlace(view_, state_), 0u);
  EXPECT_EQ(view_.rows[SelectedPlace(view_, state_)].session_ids.front(), 13u);
}

TEST_F(TopKeys, AWeightIsTypedAndSetOnEnter) {
  EXPECT_EQ(Type("jw25\x7f"
                 "00")
                .kind,
            TopRequest::Kind::kNone);
  EXPECT_EQ(state_.typed, "200");
  const TopRequest request = Type("\r");
  EXPECT_EQ(request.kind, TopRequest::Kind::kSetRank);
  EXPECT_EQ(request.session_ids, (std::vector<uint64_t>{12}));
  EXPECT_EQ(request.number, 200u);
  EXPECT_FALSE(request.is_high);
  EXPECT_EQ(state_.prompt, TopState::Prompt::kNone);
}

TEST_F(TopKeys, OfAHighPriorityRowItIsTheLevel) { EXPECT_TRUE(Type("jjw3\r").is_high); }

// The row below would get the weight that was meant for the one that ended.
TEST_F(TopKeys, WhatIsAskedForStaysThatRowThoughOthersComeAndGo) {
  Type("jw3");
  view_.rows.erase(view_.rows.begin() + 1);
  EXPECT_EQ(Type("00\r").session_ids, (std::vector<uint64_t>{12}));
}

TEST_F(TopKeys, EscapeAndAnEmptyNumberAskForNothing) {
  for (const char* keys : {"w25\x1b", "w\r", "wq\r", "p\x1b", "w\x7f\r"}) {
    EXPECT_EQ(Type(keys).kind, TopRequest::Kind::kNone) << keys;
    EXPECT_EQ(state_.prompt, TopState::Prompt::kNone) << keys;
  }
  EXPECT_EQ(Type("w1234567890\r").number, 12345u) << "too many digits are not taken";
}

TEST_F(TopKeys, AClassIsOneLetter) {
  const TopRequest request = Type("pxh");
  EXPECT_EQ(request.kind, TopRequest::Kind::kSetClass);
  EXPECT_TRUE(request.is_high);
  EXPECT_FALSE(Type("pb").is_high);
}

TEST_F(TopKeys, ARowOfATenantIsAllItsSessions) {
  view_.rows[0].session_ids = {11, 21, 31};
  EXPECT_EQ(Type("w7\r").session_ids, (std::vector<uint64_t>{11, 21, 31}));
}

TEST_F(TopKeys, SortingGoesRoundBothWays) {
  const TopColumn first = state_.sort;
  for (size_t i = 0; i < kNumTopColumns; ++i) Type("s");
  EXPECT_EQ(state_.sort, first);
  Type("<");
  EXPECT_EQ(static_cast<size_t>(state_.sort), static_cast<size_t>(first) - 1);
  Type("r");
  EXPECT_TRUE(state_.is_reversed);
}

TEST_F(TopKeys, PauseEndsWithANewSample) {
  EXPECT_EQ(Type(" ").kind, TopRequest::Kind::kNone);
  EXPECT_TRUE(state_.is_paused);
  EXPECT_EQ(Type(" ").kind, TopRequest::Kind::kSample);
}

TEST_F(TopKeys, HelpIsLeftByAnyKeyWhichDoesNothingElse) {
  EXPECT_EQ(Type("hq").kind, TopRequest::Kind::kNone);
  EXPECT_EQ(Type("q").kind, TopRequest::Kind::kQuit);
}

TEST_F(TopKeys, NothingIsAskedOfNoRows) {
  view_.rows.clear();
  Type("w");
  EXPECT_EQ(state_.prompt, TopState::Prompt::kNone);
}

}  // namespace
}  // namespace tally::cli
