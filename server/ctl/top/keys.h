// What keys do to `tallyctl top`: bytes of the terminal become keys, keys change what is shown or ask for something.
// Pure: what is asked for is carried out by top.cc.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "server/ctl/top/columns.h"
#include "server/ctl/top/model.h"

namespace tally::cli {

enum class Key : uint8_t {
  kLetter,
  kEnter,
  kEscape,
  kBackspace,
  kUp,
  kDown,
  kPageUp,
  kPageDown,
  kHome,
  kEnd,
  kUnknown
};
struct KeyPress {
  Key key = Key::kUnknown;
  char letter = 0;  // of kLetter
};

// Of what one read gave: a terminal sends the bytes of one key together.
std::vector<KeyPress> KeysOf(std::string_view bytes);

// What is shown, and how. Outlives the samples.
struct TopState {
  enum class Prompt : uint8_t { kNone, kRank, kClass, kHelp };

  TopColumn sort = TopColumn::kBusy;
  bool is_reversed = false;
  bool is_by_tenant = false;
  bool is_paused = false;
  uint64_t selected = 0;    // first session of that row; 0 or gone: the first row
  size_t first_row = 0;     // shown
  size_t num_visible = 10;  // rows that the last page had room for
  Prompt prompt = Prompt::kNone;
  TopRow asked;  // of which row the prompt is: it stays that one, whatever comes and goes meanwhile
  std::string typed;
  std::string message;  // of the last thing that was asked for; until the next key
};

struct TopRequest {
  enum class Kind : uint8_t { kNone, kQuit, kSample, kSetRank, kSetClass };
  Kind kind = Kind::kNone;
  std::vector<uint64_t> session_ids;
  bool is_high = false;  // of kSetRank: a level and no weight; of kSetClass: the new class
  uint32_t number = 0;
};

// `view` is what the page shows, sorted.
TopRequest OnKey(const KeyPress& press, const TopView& view, TopState* state);

// The place of the selected row; 0 if it is gone.
size_t SelectedPlace(const TopView& view, const TopState& state);
// Keeps the selected row on the page.
void Scroll(const TopView& view, TopState* state);

// "session 7", "3 sessions of train".
std::string NameOf(const TopRow& row);

}  // namespace tally::cli
