// trace.
#include <fmt/format.h>
#include <sys/stat.h>

#include <CLI/CLI.hpp>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <memory>

#include "server/ctl/commands.h"
#include "server/ctl/control_call.h"
#include "server/ctl/trace_events.h"

namespace tally::cli {
namespace {

namespace v1 = control::v1;

// A recording of a minute, as large as it may be, through a socket.
constexpr std::chrono::seconds kTransferLimit{60};

struct TraceOptions {
  double seconds = 5;
  std::string output;
};

// Half a trace is none. What was no file before is not ours to remove: /dev/null would be gone for everybody.
void RemoveUnlessDevice(std::FILE* file, const std::string& path) {
  struct stat what {};
  if (::fstat(::fileno(file), &what) == 0 && S_ISREG(what.st_mode)) std::remove(path.c_str());
}

int Record(const Invocation& invocation, const TraceOptions& options) {
  const bool is_stdout = options.output == "-";
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> opened(
      is_stdout ? nullptr : std::fopen(options.output.c_str(), "we"),
      [](std::FILE* file) { return std::fclose(file); });
  std::FILE* const file = is_stdout ? stdout : opened.get();
  if (file == nullptr) {
    fmt::print(stderr, "tallyctl: cannot write '{}': {}\n", options.output, std::strerror(errno));
    return 1;
  }
  bool is_written = true, is_cut_short = false;
  TraceEvents events([&](std::string_view text) {
    is_written = is_written && std::fwrite(text.data(), 1, text.size(), file) == text.size();
  });
  v1::TraceRequest request;
  request.set_duration_ns(static_cast<uint64_t>(std::llround(options.seconds * 1e9)));
  const auto limit = kCallLimit + std::chrono::milliseconds(std::llround(options.seconds * 1000)) + kTransferLimit;
  const std::string problem = CallControl(invocation.socket, limit, [&](auto& stub, auto& context) {
    const auto reader = stub.Trace(&context, request);
    for (v1::TraceChunk chunk; is_written && reader->Read(&chunk);) {
      is_cut_short = is_cut_short || chunk.is_cut_short();
      events.Add(chunk);
    }
    return reader->Finish();
  });
  events.Finish();
  if (!problem.empty()) {
    if (!is_stdout) RemoveUnlessDevice(file, options.output);
    fmt::print(stderr, "tallyctl: {}\n", problem);
    return 1;
  }
  if (!is_written || std::fflush(file) != 0) {
    fmt::print(stderr, "tallyctl: cannot write '{}': {}\n", options.output, std::strerror(errno));
    return 1;
  }
  if (is_cut_short) fmt::print(stderr, "tallyctl: the trace is shorter: that of tallyd's administrator went first\n");
  if (is_stdout) return 0;
  fmt::print("{} events in '{}': open it at ui.perfetto.dev or chrome://tracing\n", events.num_events(),
             options.output);
  if (events.num_dropped() != 0) fmt::print("{} operations were not recorded\n", events.num_dropped());
  return 0;
}

}  // namespace

Action DeclareTrace(CLI::App& app) {
  const auto options = std::make_shared<TraceOptions>();
  app.add_option("--seconds", options->seconds, "how long, 0.001 to 60 (default: 5)")
      ->type_name("SECONDS")
      ->check([](const std::string& text) {
        double seconds = 0;
        const bool is_one = CLI::detail::lexical_cast(text, seconds) && seconds >= 0.001 && seconds <= 60;
        return is_one ? std::string() : "'" + text + "' is not a number from 0.001 to 60";
      });
  app.add_option("-o,--output", options->output, "the file to write; '-': standard output")
      ->type_name("FILE")
      ->required();
  return [options](const Invocation& invocation) { return Record(invocation, *options); };
}

}  // namespace tally::cli
