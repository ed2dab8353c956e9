// A machine that has no more threads to give, for tests of who asks for one.
//
// While one lives, pthread_create of this process answers EAGAIN, as it does at a task limit of a user or a cgroup. At
// most one at a time.
#pragma once

namespace tally::fakes {

class TaskLimit {
 public:
  // So many threads can still be started.
  explicit TaskLimit(int num_left = 0);
  ~TaskLimit();
  TaskLimit(const TaskLimit&) = delete;
  TaskLimit& operator=(const TaskLimit&) = delete;

  // How many were refused.
  int num_refused() const;
};

}  // namespace tally::fakes
