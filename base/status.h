// Status and Result: the only vocabulary for errors that a caller can do something about.
//
// Codes are numbered as gRPC's, so that server/daemon/rpc translates by a cast. A broken invariant is not a Status: it
// is a CHECK (base/check.h). Add context on the way up: `return status.With("load module 'x'")`.
#pragma once

#include <expected>
#include <string>
#include <string_view>
#include <utility>

namespace tally {

enum class StatusCode : int {
  kOk = 0,
  kCancelled = 1,         // the caller's wish, or its session ended
  kUnknown = 2,           // an outside library failed without saying why
  kInvalidArgument = 3,   // wrong whatever the state: retrying cannot help
  kDeadlineExceeded = 4,  // a bounded wait ran out
  kNotFound = 5,          // named thing does not exist
  kAlreadyExists = 6,
  kPermissionDenied = 7,    // the peer may not, whoever asks again
  kResourceExhausted = 8,   // memory, quota, descriptors, ring space
  kFailedPrecondition = 9,  // right request, wrong state: something else must happen first
  kAborted = 10,
  kOutOfRange = 11,
  kUnimplemented = 12,  // refused by name
  kInternal = 13,       // our bug, seen without crashing
  kUnavailable = 14,    // the peer is gone or not there yet: retrying may help
  kDataLoss = 15,       // bytes that should parse do not
};

// Name of a code as in gRPC, e.g. "NOT_FOUND". Never null.
std::string_view StatusCodeName(StatusCode code);

class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(StatusCode code, std::string message) : code_(code), message_(std::move(message)) {}

  bool ok() const { return code_ == StatusCode::kOk; }
  StatusCode code() const { return code_; }
  const std::string& message() const { return message_; }

  // "NOT_FOUND: context: message", for logs and people.
  std::string ToString() const;
  // The same status with `context` in front of its message; OK stays OK.
  Status With(std::string_view context) const;

 private:
  StatusCode code_ = StatusCode::kOk;
  std::string message_;
};

inline Status OkStatus() { return Status(); }
// A status from errno after a failed system call: "open /dev/x: Permission denied".
Status StatusFromErrno(int error, std::string_view what);

template <typename T>
using Result = std::expected<T, Status>;

inline std::unexpected<Status> Error(StatusCode code, std::string message) {
  return std::unexpected<Status>(Status(code, std::move(message)));
}

}  // namespace tally

// Returns the status of `expression` from the enclosing function unless it is OK.
#define TALLY_RETURN_IF_ERROR(expression)                                                        \
  do {                                                                                           \
    if (::tally::Status tally_status_ = (expression); !tally_status_.ok()) return tally_status_; \
  } while (false)
