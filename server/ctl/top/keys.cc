#include "server/ctl/top/keys.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "base/printable.h"

namespace tally::cli {
namespace {

struct Sequence {
  std::string_view bytes;
  Key key;
};
// Both ways in which terminals send them; the longer before those that they begin with.
constexpr Sequence kSequences[] = {
    {"\x1b[A", Key::kUp},      {"\x1bOA", Key::kUp},        {"\x1b[B", Key::kDown}, {"\x1bOB", Key::kDown},
    {"\x1b[5~", Key::kPageUp}, {"\x1b[6~", Key::kPageDown}, {"\x1b[H", Key::kHome}, {"\x1bOH", Key::kHome},
    {"\x1b[1~", Key::kHome},   {"\x1b[F", Key::kEnd},       {"\x1bOF", Key::kEnd},  {"\x1b[4~", Key::kEnd},
};

constexpr size_t kMostDigits = 5;

// The end of an escape sequence that begins at 0 and is not known: behind its last byte.
size_t EndOfSequence(std::string_view bytes) {
  if (bytes.size() < 2 || (bytes[1] != '[' && bytes[1] != 'O')) return 1;
  for (size_t i = 2; i < bytes.size(); ++i) {
    if (bytes[i] >= '@' && bytes[i] <= '~') return i + 1;
  }
  return bytes.size();
}

void Move(const TopView& view, size_t place, TopState* state) {
  if (view.rows.empty()) return;
  state->selected = view.rows[std::min(place, view.rows.size() - 1)].session_ids.front();
  Scroll(view, state);
}

// Round and round; `step` is at most the number of columns.
void NextColumn(size_t step, TopState* state) {
  state->sort = static_cast<TopColumn>((static_cast<size_t>(state->sort) + step) % kNumTopColumns);
}

TopRequest OnKeyOfPrompt(const KeyPress& press, TopState* state) {
  TopRequest request;
  const TopState::Prompt prompt = state->prompt;
  if (prompt == TopState::Prompt::kHelp || press.key == Key::kEscape) {
    state->prompt = TopState::Prompt::kNone;
    return request;
  }
  if (prompt == TopState::Prompt::kClass) {
    if (press.letter != 'h' && press.letter != 'b') return request;
    request.kind = TopRequest::Kind::kSetClass;
    request.is_high = press.letter == 'h';
  } else if (press.key == Key::kLetter && press.letter >= '0' && press.letter <= '9') {
    if (state->typed.size() < kMostDigits) state->typed += press.letter;
    return request;
  } else if (press.key == Key::kBackspace) {
    if (!state->typed.empty()) state->typed.pop_back();
    return request;
  } else if (press.key != Key::kEnter) {
    return request;
  } else if (state->typed.empty()) {
    state->prompt = TopState::Prompt::kNone;
    return request;
  } else {
    request.kind = TopRequest::Kind::kSetRank;
    request.is_high = state->asked.is_high;
    std::from_chars(state->typed.data(), state->typed.data() + state->typed.size(), request.number);
  }
  request.session_ids = state->asked.session_ids;
  state->prompt = TopState::Prompt::kNone;
  return request;
}

void Ask(TopState::Prompt prompt, const TopView& view, TopState* state) {
  if (view.rows.empty()) return;
  state->asked = view.rows[SelectedPlace(view, *state)];
  state->selected = state->asked.session_ids.front();
  state->prompt = prompt;
  state->typed.clear();
}

TopRequest OnLetter(char letter, const TopView& view, TopState* state) {
  switch (letter) {
    case 'q':
      return {TopRequest::Kind::kQuit, {}, false, 0};
    case 's':
    case '>':
      NextColumn(1, state);
      break;
    case 'S':
    case '<':
      NextColumn(kNumTopColumns - 1, state);
      break;
    case 'r':
      state->is_reversed = !state->is_reversed;
      break;
    case 't':
      state->is_by_tenant = !state->is_by_tenant;
      break;
    case ' ':
      state->is_paused = !state->is_paused;
      if (!state->is_paused) return {TopRequest::Kind::kSample, {}, false, 0};
      break;
    case 'w':
      Ask(TopState::Prompt::kRank, view, state);
      break;
    case 'p':
      Ask(TopState::Prompt::kClass, view, state);
      break;
    case 'h':
    case '?':
      state->prompt = TopState::Prompt::kHelp;
      break;
    case 'j':
      Move(view, SelectedPlace(view, *state) + 1, state);
      break;
    case 'k':
      Move(view, std::max<size_t>(SelectedPlace(view, *state), 1) - 1, state);
      break;
    default:
      state->message = "keys: h shows them";
  }
  return {};
}

}  // namespace

std::vector<KeyPress> KeysOf(std::string_view bytes) {
  std::vector<KeyPress> keys;
  while (!bytes.empty()) {
    const char first = bytes.front();
    size_t length = 1;
    KeyPress press;
    if (first == '\x1b') {
      const auto* const known =
          std::ranges::find_if(kSequences, [&](const auto& s) { return bytes.starts_with(s.bytes); });
      length = known != std::end(kSequences) ? known->bytes.size() : EndOfSequence(bytes);
      press.key = known != std::end(kSequences) ? known->key : length == 1 ? Key::kEscape : Key::kUnknown;
    } else if (first == '\r' || first == '\n') {
      press.key = Key::kEnter;
    } else if (first == '\x7f' || first == '\b') {
      press.key = Key::kBackspace;
    } else if (first >= ' ' && first <= '~') {
      press = {Key::kLetter, first};
    }
    keys.push_back(press);
    bytes.remove_prefix(length);
  }
  return keys;
}

TopRequest OnKey(const KeyPress& press, const TopView& view, TopState* state) {
  state->message.clear();
  if (state->prompt != TopState::Prompt::kNone) return OnKeyOfPrompt(press, state);
  const size_t place = SelectedPlace(view, *state);
  const size_t page = std::max<size_t>(state->num_visible, 1);
  switch (press.key) {
    case Key::kLetter:
      return OnLetter(press.letter, view, state);
    case Key::kUp:
      Move(view, std::max<size_t>(place, 1) - 1, state);
      break;
    case Key::kDown:
      Move(view, place + 1, state);
      break;
    case Key::kPageUp:
      Move(view, std::max(place, page) - page, state);
      break;
    case Key::kPageDown:
      Move(view, place + page, state);
      break;
    case Key::kHome:
      Move(view, 0, state);
      break;
    case Key::kEnd:
      Move(view, view.rows.size(), state);
      break;
    default:
      break;
  }
  return {};
}

size_t SelectedPlace(const TopView& view, const TopState& state) {
  for (size_t place = 0; place < view.rows.size(); ++place) {
    if (std::ranges::binary_search(view.rows[place].session_ids, state.selected)) return place;
  }
  return 0;
}

void Scroll(const TopView& view, TopState* state) {
  const size_t place = SelectedPlace(view, *state);
  const size_t visible = std::max<size_t>(state->num_visible, 1);
  if (place < state->first_row) state->first_row = place;
  if (place >= state->first_row + visible) state->first_row = place - visible + 1;
  const size_t most = view.rows.size() > visible ? view.rows.size() - visible : 0;
  state->first_row = std::min(state->first_row, most);
}

std::string NameOf(const TopRow& row) {
  return row.session_ids.size() == 1
             ? fmt::format("session {} ({})", row.session_ids.front(), Printable(row.tenant))
             : fmt::format("the {} sessions of {}", row.session_ids.size(), Printable(row.tenant));
}

}  // namespace tally::cli
