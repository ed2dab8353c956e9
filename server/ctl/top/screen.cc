#include "server/ctl/top/screen.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <string_view>

namespace tally::cli {
namespace {

constexpr std::string_view kEnter = "\x1b[?1049h\x1b[?25l\x1b[H\x1b[2J";  // the other screen, no cursor, empty
constexpr std::string_view kLeave = "\x1b[0m\x1b[?25h\x1b[?1049l";
constexpr int kDeadlySignals[] = {SIGSEGV, SIGABRT, SIGBUS, SIGFPE, SIGILL};

// For the handler of those: plain, because it may run anywhere.
int entered_input = -1;
int entered_output = -1;
termios saved_modes;

void RestoreAfterCrash(int signal) {
  if (entered_output >= 0) {
    (void)!::write(entered_output, kLeave.data(), kLeave.size());
    ::tcsetattr(entered_input, TCSANOW, &saved_modes);
  }
  ::raise(signal);  // its handler was reset
}

bool WriteAll(int fd, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(fd, bytes.data(), bytes.size());
    if (written >= 0) {
      bytes.remove_prefix(static_cast<size_t>(written));
    } else if (errno == EAGAIN) {
      pollfd ready{fd, POLLOUT, 0};
      ::poll(&ready, 1, -1);
    } else if (errno != EINTR) {
      return false;
    }
  }
  return true;
}

const char* CodeOf(Ink ink, bool has_colors) {
  switch (ink) {
    case Ink::kTitle:
    case Ink::kSelected:
      return "7";
    case Ink::kHeader:
      return "1";
    case Ink::kSortedHeader:
      return "1;4";
    case Ink::kHigh:
      return has_colors ? "1;36" : "1";
    case Ink::kGood:
      return has_colors ? "32" : nullptr;
    case Ink::kWarning:
      return has_colors ? "33" : "1";
    case Ink::kBad:
      return has_colors ? "1;31" : "1";
    case Ink::kPlain:
      return nullptr;
  }
  return nullptr;
}

}  // namespace

bool CanShowPages(const char* term) {
  return term != nullptr && *term != 0 && std::string_view(term) != "dumb" && std::string_view(term) != "unknown";
}

bool HasColors(const char* term, const char* no_color) {
  if (!CanShowPages(term) || (no_color != nullptr && *no_color != 0)) return false;
  const std::string_view name(term);
  return !name.starts_with("vt") && !name.ends_with("-m") && !name.ends_with("-mono");  // DEC's, and *-m: monochrome
}

std::string Drawn(const PageLine& text, size_t line, size_t columns, bool has_colors) {
  std::string bytes = fmt::format("\x1b[{};1H", line + 1);
  size_t width = 0;
  for (const Piece& piece : text) {
    const char* const code = CodeOf(piece.ink, has_colors);
    bytes += code == nullptr ? piece.text : fmt::format("\x1b[{}m{}\x1b[0m", code, piece.text);
    width += piece.text.size();
  }
  // Behind a full line the cursor still stands on its last column, which would be erased.
  if (width < columns) bytes += "\x1b[K";
  return bytes;
}

bool Screen::Enter() {
  if (is_entered_) return true;
  termios modes{};
  if (::tcgetattr(input_, &modes) != 0 || ::isatty(output_) == 0) return false;
  saved_modes = modes;
  // Key by key and not echoed. Signals stay: control-C and control-Z are what they are everywhere.
  modes.c_lflag &= ~static_cast<tcflag_t>(ICANON | ECHO);
  modes.c_cc[VMIN] = 1;
  modes.c_cc[VTIME] = 0;
  if (::tcsetattr(input_, TCSANOW, &modes) != 0) return false;
  entered_input = input_;
  entered_output = output_;
  struct sigaction action {};
  action.sa_handler = RestoreAfterCrash;
  action.sa_flags = static_cast<int>(SA_RESETHAND | SA_NODEFER);
  for (const int signal : kDeadlySignals) ::sigaction(signal, &action, nullptr);
  is_entered_ = true;
  shown_.clear();
  shown_size_ = {0, 0};
  return WriteAll(output_, kEnter);
}

void Screen::Leave() {
  if (!is_entered_) return;
  is_entered_ = false;
  (void)WriteAll(output_, kLeave);
  ::tcsetattr(input_, TCSANOW, &saved_modes);
  entered_output = -1;
  for (const int signal : kDeadlySignals) ::signal(signal, SIG_DFL);
}

PageSize Screen::Size() const {
  winsize size{};
  if (::ioctl(output_, TIOCGWINSZ, &size) != 0 || size.ws_col == 0 || size.ws_row == 0) return {};
  return {size.ws_col, size.ws_row};
}

bool Screen::Show(const std::vector<PageLine>& page) {
  const PageSize size = Size();
  std::string bytes;
  if (size != shown_size_) {  // terminals differ in what is left after a change of size
    bytes = "\x1b[2J";
    shown_.clear();
  }
  for (size_t line = 0; line < size.lines; ++line) {
    static const PageLine kEmpty;
    const PageLine& text = line < page.size() ? page[line] : kEmpty;
    if (line < shown_.size() && shown_[line] == text) continue;
    bytes += Drawn(text, line, size.columns, has_colors_);
  }
  shown_ = page;
  shown_.resize(size.lines);
  shown_size_ = size;
  return bytes.empty() || WriteAll(output_, bytes);
}

}  // namespace tally::cli
