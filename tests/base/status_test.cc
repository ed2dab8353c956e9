#include "base/status.h"

#include <gtest/gtest.h>

#include <cerrno>

namespace tally {
namespace {

TEST(Status, ContextGrowsOnTheWayUp) {
  const Status status = Status(StatusCode::kNotFound, "no such file").With("open config").With("start");
  EXPECT_EQ(status.ToString(), "NOT_FOUND: start: open config: no such file");
}

TEST(Status, OkStaysOk) { EXPECT_TRUE(OkStatus().With("anything").ok()); }

TEST(Status, ErrnoBecomesACodeACallerCanActOn) {
  EXPECT_EQ(StatusFromErrno(ENOENT, "x").code(), StatusCode::kNotFound);
  EXPECT_EQ(StatusFromErrno(EACCES, "x").code(), StatusCode::kPermissionDenied);
  EXPECT_EQ(StatusFromErrno(ENOSPC, "x").code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(StatusFromErrno(ECONNREFUSED, "x").code(), StatusCode::kUnavailable);
}

TEST(Status, CodesOutsideTheTableHaveAName) { EXPECT_EQ(StatusCodeName(static_cast<StatusCode>(99)), "INVALID_CODE"); }

}  // namespace
}  // namespace tally
