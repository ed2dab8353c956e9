// The terminal of `tallyctl top`: taken over, drawn on, given back.
//
// Every terminal that has been in use for decades understands the dozen control sequences that are written here, so
// there is no terminal library and no database of terminals behind it: the tarball runs on machines that have neither.
// Only what changed is written, which is little over a slow line.
#pragma once

#include <termios.h>

#include <string>
#include <vector>

#include "server/ctl/top/page.h"

namespace tally::cli {

// Whether a terminal of that name (TERM) can show a page at all; whether it has colours and `no_color` (NO_COLOR) lets
// them be used. Null: not set.
bool CanShowPages(const char* term);
bool HasColors(const char* term, const char* no_color);

// What makes line `line` of the screen, counted from 0, look like that.
std::string Drawn(const PageLine& text, size_t line, size_t columns, bool has_colors);

// One thread, one at a time. Leaves the terminal as it was, at the latest when it is destroyed; also if the process
// dies of a signal that says that it is broken.
class Screen {
 public:
  Screen(int input, int output, bool has_colors) : input_(input), output_(output), has_colors_(has_colors) {}
  ~Screen() { Leave(); }
  Screen(const Screen&) = delete;
  Screen& operator=(const Screen&) = delete;

  // False: it is not a terminal.
  bool Enter();
  void Leave();
  PageSize Size() const;
  // False: the terminal is gone.
  bool Show(const std::vector<PageLine>& page);

 private:
  const int input_;
  const int output_;
  const bool has_colors_;
  bool is_entered_ = false;
  PageSize shown_size_{};
  std::vector<PageLine> shown_;
};

}  // namespace tally::cli
