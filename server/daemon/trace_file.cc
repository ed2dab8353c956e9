#include "server/daemon/trace_file.h"

#include <unistd.h>

#include <algorithm>
#include <cstring>

namespace tally::server {
namespace {

bool ReadAll(int file, void* into, size_t size, off_t at) {
  char* to = static_cast<char*>(into);
  while (size > 0) {
    const ssize_t count = ::pread(file, to, size, at);
    if (count <= 0) return false;
    to += count;
    at += count;
    size -= static_cast<size_t>(count);
  }
  return true;
}

bool MakesSense(const control::TraceEvent& event, size_t num_names) {
  return event.name < num_names && event.kind >= static_cast<uint16_t>(control::TraceKind::kRun) &&
         event.kind <= static_cast<uint16_t>(control::TraceKind::kRefreshed);
}

}  // namespace

Result<TraceContents> ReadTraceFile(int file) {
  const auto nonsense = [] { return Error(StatusCode::kInvalidArgument, "its recording makes no sense"); };
  TraceContents contents;
  control::TraceFileHeader& header = contents.header;
  if (!ReadAll(file, &header, sizeof(header), 0) || header.magic == 0) {
    return Error(StatusCode::kUnavailable, "it did not record");
  }
  if (header.magic != control::kTraceMagic || header.num_events > control::kMostTraceEvents ||
      header.num_names > control::kMostTraceNames || header.ended_ns < header.began_ns) {
    return nonsense();
  }
  contents.events.resize(header.num_events);
  const size_t events_bytes = contents.events.size() * sizeof(control::TraceEvent);
  std::vector<char> names(header.num_names * control::kTraceNameBytes);
  if (!ReadAll(file, contents.events.data(), events_bytes, sizeof(header)) ||
      !ReadAll(file, names.data(), names.size(), static_cast<off_t>(sizeof(header) + events_bytes))) {
    return nonsense();
  }
  for (size_t i = 0; i < header.num_names; ++i) {
    const char* name = names.data() + i * control::kTraceNameBytes;
    contents.names.emplace_back(name, ::strnlen(name, control::kTraceNameBytes - 1));
  }
  const bool is_sane =
      std::ranges::all_of(contents.events, [&](const auto& event) { return MakesSense(event, contents.names.size()); });
  if (!is_sane) return nonsense();
  return contents;
}

}  // namespace tally::server
