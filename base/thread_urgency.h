// Which of several threads that could run goes first.
#pragma once

namespace tally {

// Has the calling thread scheduled before others of its process (five levels of niceness), or as one of them again.
// Where the process may not ask for that (neither root nor CAP_SYS_NICE nor RLIMIT_NICE) nothing changes.
void SetThreadUrgent(bool is_urgent);

}  // namespace tally
