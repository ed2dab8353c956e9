// doctor: is this machine, and this program, in order?
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <thread>

#include "base/thread.h"
#include "server/ctl/commands.h"
#include "server/ctl/doctor/collect.h"
#include "server/ctl/doctor/verdicts.h"

namespace tally::cli {
namespace {

using Json = nlohmann::json;

constexpr std::chrono::seconds kLimit{10};

// Ends the process if it is not done in time: a file system or a driver may keep whoever looks at it.
void LimitTime(std::chrono::seconds limit, const Progress& progress) {
  auto timer = StartThread("limit", [limit, &progress] {
    std::this_thread::sleep_for(limit);
    fmt::print(stderr, "tallyctl: doctor was not done within {} s: {} did not answer\n", limit.count(),
               progress.load());
    ::_exit(1);
  });
  if (timer) timer->detach();  // without one it may take longer
}

int Examine(Question question, const Invocation& invocation) {
  static Progress progress = "";  // outlives this function, as the thread does
  LimitTime(question.tests_switches ? kLimit + kSwitchTestLimit : kLimit, progress);
  question.socket = invocation.socket;
  const auto facts = CollectFacts(question, progress);
  if (!facts) {
    fmt::print(stderr, "tallyctl: {}\n", facts.error().message());
    return 1;
  }
  const std::vector<Check> checks = Judge(*facts);
  if (invocation.as_json) {
    Json rows = Json::array();
    for (const Check& check : checks) {
      rows.push_back(
          {{"check", check.name}, {"state", NameOf(check.verdict)}, {"found", check.found}, {"advice", check.advice}});
    }
    fmt::print("{}\n", rows.dump(2, ' ', false, Json::error_handler_t::replace));
  } else {
    fmt::print("{}", CheckTable(checks));
  }
  const bool has_failed =
      std::any_of(checks.begin(), checks.end(), [](const Check& check) { return check.verdict == Verdict::kFailed; });
  return has_failed ? 1 : 0;
}

}  // namespace

Action DeclareDoctor(CLI::App& app) {
  const auto question = std::make_shared<Question>();
  app.add_option("PROGRAM", question->program, "a program or library: can it run under Tally, and on which GPUs?")
      ->type_name("FILE");
  app.add_flag("--switch-test", question->tests_switches,
               "measure whether time slices act on this GPU, for some seconds; nothing else should use it");
  return [question](const Invocation& invocation) { return Examine(*question, invocation); };
}

}  // namespace tally::cli
