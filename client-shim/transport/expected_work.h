// What this process tells its executor of work that it expects (docs/arrival-hints.md): the preloaded library by what
// it has learned, the program itself by tally_expect_work. The page is the session's and is opened by whoever needs it
// first.
#pragma once

#include <cstdint>

namespace tally::client_shim {

// After cuInit: with TALLY_HINTS=on, hands the page to the preloaded library. Says so if there is none, or no page.
void StartArrivalHints();
// Work is expected in so many microseconds. Any thread. 0: said, or nobody wants to know; EINVAL: more than a second.
int ExpectWork(uint64_t microseconds);
// In the child of a fork: nothing more is said.
void ForgetArrivalHints();

}  // namespace tally::client_shim
