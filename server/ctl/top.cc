// top: what the GPUs do and for whom, on a full screen or as snapshots.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <poll.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/clock.h"
#include "base/unique_fd.h"
#include "server/ctl/commands.h"
#include "server/ctl/control_call.h"
#include "server/ctl/output_width.h"
#include "server/ctl/table.h"
#include "server/ctl/top/page.h"
#include "server/ctl/top/screen.h"
#include "server/ctl/top/snapshot_json.h"

namespace tally::cli {
namespace {

namespace v1 = control::v1;
using std::chrono::milliseconds;

constexpr milliseconds kSampleLimit{2'000};  // so long may keys have to wait
constexpr milliseconds kFirstRates{500};     // after the first page, which has none

struct TopOptions {
  bool is_once = false;
  unsigned num_snapshots = 0;  // 0: on the screen
  double interval_s = 2;
  std::string sort = KindOf(TopColumn::kBusy).name;
  bool is_by_tenant = false;
};

std::string TimeOfDay(const char* format) {
  const time_t now = ::time(nullptr);
  tm parts{};
  ::localtime_r(&now, &parts);
  char text[64] = "";
  (void)std::strftime(text, sizeof(text), format, &parts);
  return text;
}

TopColumn ColumnOf(const std::string& name) {
  for (size_t i = 0; i < kNumTopColumns; ++i) {
    if (name == KindOf(static_cast<TopColumn>(i)).name) return static_cast<TopColumn>(i);
  }
  return TopColumn::kBusy;
}

// Asks tallyd and NVML, one sample after the other.
class Sampler {
 public:
  explicit Sampler(std::string socket) : socket_(std::move(socket)) {}

  // Empty: there is a new sample; else one sentence, and the samples are as before.
  std::string Take() {
    TopSample sample;
    std::string problem = CallControl(socket_, kSampleLimit, [&](auto& stub, auto& context) {
      return stub.ListSessions(&context, {}, &sample.sessions);
    });
    sample.at_ns = static_cast<uint64_t>(clock_.Now().time_since_epoch().count());
    if (problem.empty()) {
      problem = CallControl(socket_, kSampleLimit, [&](auto& stub, auto& context) {
        return stub.ListExecutors(&context, {}, &sample.executors);
      });
    }
    if (problem.empty()) {
      problem = CallControl(socket_, kSampleLimit,
                            [&](auto& stub, auto& context) { return stub.Version(&context, {}, &sample.version); });
    }
    if (!problem.empty()) return problem;
    sample.gpus = gpus_.Read();
    before_ = std::move(now_);
    now_ = std::move(sample);
    return "";
  }

  uint64_t age_ns() const { return static_cast<uint64_t>(clock_.Now().time_since_epoch().count()) - now_->at_ns; }

  TopView View(const TopState& state) const {
    TopView view = TopViewOf(before_ ? &*before_ : nullptr, *now_, state.is_by_tenant);
    SortRows(state.sort, state.is_reversed, &view.rows);
    return view;
  }

 private:
  const std::string socket_;
  const SteadyClock clock_;
  const GpuReadings gpus_;
  std::optional<TopSample> before_, now_;
};

int Complain(const std::string& problem) {
  fmt::print(stderr, "tallyctl: {}\n", problem);
  return 1;
}

void Pause(milliseconds time) { ::poll(nullptr, 0, static_cast<int>(time.count())); }

int PrintSnapshots(const Invocation& invocation, const TopOptions& options, const TopState& state) {
  const milliseconds interval{static_cast<long>(options.interval_s * 1e3)};
  Sampler sampler(invocation.socket);
  if (const std::string problem = sampler.Take(); !problem.empty()) return Complain(problem);
  const unsigned count = std::max(options.num_snapshots, 1U);
  for (unsigned i = 0; i < count; ++i) {
    Pause(interval);
    if (const std::string problem = sampler.Take(); !problem.empty()) return Complain(problem);
    const TopView view = sampler.View(state);
    const std::string clock = TimeOfDay("%Y-%m-%dT%H:%M:%S%z");
    if (invocation.as_json) {
      fmt::print("{}\n", ToJson(view, clock).dump());
    } else {
      fmt::print("{}{}", i == 0 ? "" : "\n", SnapshotOf(view, OutputWidth(), clock));
    }
    if (std::fflush(stdout) != 0)
      return Complain("the snapshots cannot be written: " + std::string(std::strerror(errno)));
  }
  return 0;
}

// What a key asked for, of each session; says how it went.
std::string CarryOut(const Invocation& invocation, const TopRequest& request) {
  for (const uint64_t id : request.session_ids) {
    v1::SetPriorityRequest change;
    change.set_session_id(id);
    if (request.kind == TopRequest::Kind::kSetClass) {
      change.set_priority_class(request.is_high ? v1::PRIORITY_CLASS_HIGH : v1::PRIORITY_CLASS_BEST_EFFORT);
    } else if (request.is_high) {
      change.set_level(request.number);
    } else {
      change.set_weight(request.number);
    }
    v1::SetPriorityResponse response;
    const std::string problem = CallControl(invocation.socket, kSampleLimit, [&](auto& stub, auto& context) {
      return stub.SetPriority(&context, change, &response);
    });
    if (!problem.empty()) return problem;
  }
  const std::string what = request.kind == TopRequest::Kind::kSetClass
                               ? std::string("class ") + (request.is_high ? "high" : "best-effort")
                               : fmt::format("{} {}", request.is_high ? "level" : "weight", request.number);
  return fmt::format("{} has {} now",
                     request.session_ids.size() == 1 ? fmt::format("session {}", request.session_ids.front())
                                                     : fmt::format("each of {} sessions", request.session_ids.size()),
                     what);
}

// The full screen. Signals come as bytes of a descriptor, so that nothing is drawn or restored in the middle of
// something else.
class FullScreen {
 public:
  FullScreen(const Invocation& invocation, const TopOptions& options, TopState state)
      : invocation_(invocation),
        interval_(static_cast<long>(options.interval_s * 1e3)),
        state_(std::move(state)),
        signals_(BlockedSignals()),
        sampler_(invocation.socket),
        screen_(STDIN_FILENO, STDOUT_FILENO, HasColors(std::getenv("TERM"), std::getenv("NO_COLOR"))) {}

  int Run() {
    if (const std::string problem = sampler_.Take(); !problem.empty()) return Complain(problem);
    if (!screen_.Enter()) return Complain("this is no terminal: use --once or --snapshots");
    next_sample_ = clock_.Now() + std::min(interval_, kFirstRates);
    while (!is_over_) {
      if (!screen_.Show(Page())) return 1;
      Wait();
    }
    return ending_signal_ == 0 ? 0 : EndBySignal();
  }

 private:
  // Before anything starts threads, which take the mask over.
  static int BlockedSignals() {
    sigset_t set;
    sigemptyset(&set);
    for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGWINCH, SIGTSTP}) sigaddset(&set, signal);
    pthread_sigmask(SIG_BLOCK, &set, nullptr);
    return ::signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
  }

  std::vector<PageLine> Page() {
    view_ = sampler_.View(state_);
    return PageOf(view_, screen_.Size(), TimeOfDay("%H:%M:%S"), problem_, &state_);
  }

  void Wait() {
    const auto left = std::chrono::ceil<milliseconds>(next_sample_ - clock_.Now());
    pollfd ready[] = {{STDIN_FILENO, POLLIN, 0}, {signals_.get(), POLLIN, 0}};
    const int timeout = state_.is_paused ? -1 : static_cast<int>(std::max<long>(left.count(), 0));
    if (::poll(ready, std::size(ready), timeout) < 0) return;
    if (ready[1].revents != 0) TakeSignals();
    if (ready[0].revents != 0) TakeKeys();
    if (!is_over_ && !state_.is_paused && clock_.Now() >= next_sample_) TakeSample();
  }

  void TakeSample() {
    problem_ = sampler_.Take();
    if (!problem_.empty()) problem_ = fmt::format("{} old: {}", FormatAge(sampler_.age_ns()), problem_);
    next_sample_ = clock_.Now() + interval_;
  }

  void TakeKeys() {
    char bytes[256];
    const ssize_t length = ::read(STDIN_FILENO, bytes, sizeof(bytes));
    if (length <= 0) {
      is_over_ = length == 0 || (errno != EINTR && errno != EAGAIN);  // nobody can press a key any more
      return;
    }
    for (const KeyPress& press : KeysOf({bytes, static_cast<size_t>(length)})) {
      const TopRequest request = OnKey(press, view_, &state_);
      if (request.kind == TopRequest::Kind::kQuit) is_over_ = true;
      if (request.kind == TopRequest::Kind::kSample) next_sample_ = clock_.Now();
      if (!request.session_ids.empty()) {
        state_.message = CarryOut(invocation_, request);
        if (!state_.is_paused) TakeSample();
      }
    }
  }

  void TakeSignals() {
    signalfd_siginfo signal{};
    while (::read(signals_.get(), &signal, sizeof(signal)) == static_cast<ssize_t>(sizeof(signal))) {
      const int number = static_cast<int>(signal.ssi_signo);
      if (number == SIGWINCH) continue;  // the next page is of the new size
      if (number == SIGTSTP) {
        screen_.Leave();
        ::raise(SIGSTOP);
        (void)screen_.Enter();
        continue;
      }
      is_over_ = true;
      if (number != SIGINT) ending_signal_ = number;  // control-C is how people leave
    }
  }

  // As a program ends that knows nothing of that signal.
  int EndBySignal() {
    screen_.Leave();
    ::signal(ending_signal_, SIG_DFL);
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, ending_signal_);
    pthread_sigmask(SIG_UNBLOCK, &set, nullptr);
    ::raise(ending_signal_);
    return 1;
  }

  const Invocation& invocation_;
  const milliseconds interval_;
  const SteadyClock clock_;
  TopState state_;
  const UniqueFd signals_;
  Sampler sampler_;
  Screen screen_;
  TopView view_;
  std::string problem_;
  TimePoint next_sample_{};
  bool is_over_ = false;
  int ending_signal_ = 0;
};

int ShowTop(const Invocation& invocation, const TopOptions& options) {
  TopState state;
  state.sort = ColumnOf(options.sort);
  state.is_by_tenant = options.is_by_tenant;
  const bool is_on_screen = !options.is_once && options.num_snapshots == 0 && !invocation.as_json &&
                            ::isatty(STDIN_FILENO) != 0 && ::isatty(STDOUT_FILENO) != 0;
  if (!is_on_screen) return PrintSnapshots(invocation, options, state);
  if (!CanShowPages(std::getenv("TERM")))
    return Complain("this terminal shows no full screen (TERM is missing or says so): use --once or --snapshots");
  return FullScreen(invocation, options, state).Run();
}

}  // namespace

Action DeclareTop(CLI::App& app) {
  const auto options = std::make_shared<TopOptions>();
  std::vector<std::string> columns;
  for (size_t i = 0; i < kNumTopColumns; ++i) columns.emplace_back(KindOf(static_cast<TopColumn>(i)).name);
  app.add_flag("--once", options->is_once, "print one snapshot and end; without a terminal that is what happens");
  app.add_option("--snapshots", options->num_snapshots, "print so many snapshots and end")
      ->type_name("N")
      ->check(CLI::Range(1U, 1'000'000'000U))
      ->excludes("--once");
  app.add_option("--interval", options->interval_s, "time between two samples, 0.1 to 3600; the default is 2")
      ->type_name("SECONDS")
      ->check(CLI::Range(0.1, 3600.0));
  app.add_option("--sort", options->sort, "the column that rows are sorted by first; the default is busy")
      ->type_name(fmt::format("{}", fmt::join(columns, "|")))
      ->check(CLI::IsMember(columns));
  app.add_flag("--tenants", options->is_by_tenant, "one row per tenant and class instead of one per session");
  return [options](const Invocation& invocation) { return ShowTop(invocation, *options); };
}

}  // namespace tally::cli
