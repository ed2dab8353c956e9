// Which of the tasks that may start does so next, where TALLY_SIM_SHUFFLE asks for another order than the one in which
// they came: so that an edge that is missing shows.
//
// Work on the software device is short, and what comes first in the program is started first: two kernels that nobody
// has ordered are then nearly always right. Here a random one of those that may start does, as a rule when the one
// before it has ended. A quarter of all are *late*: they start when nothing else runs or may start. So each order that
// the edges allow comes up.
//
// Nothing is promised that CUDA does not: kernels that wait for one another, and for the host, all start in the end.
// The draws repeat for a seed; an order does so too where all of it may start at once, as the roots of a graph do.
// Guarded by the timeline's mutex. No thread, no clock: the caller says what time it is.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

namespace tally::sim_driver {

struct Task;

class Shuffle {
 public:
  // How long others wait for the end of one that runs: it may itself wait for them.
  static constexpr uint64_t kPatienceNs = 500'000;
  // How long nothing must have come or ended before a late one starts: time for the program's next call.
  static constexpr uint64_t kQuietNs = 200'000;
  // How long after it could have started a late one starts whatever else there is to do.
  static constexpr uint64_t kLatestNs = 5'000'000;
  static constexpr uint64_t kNever = ~uint64_t{0};

  explicit Shuffle(uint64_t seed) : state_(seed) {}

  // It may start from now on.
  void Add(std::shared_ptr<Task> task, uint64_t now_ns);
  // The one to start now; null: none, unless something comes or ends, before `*wake_ns`.
  std::shared_ptr<Task> Next(uint64_t now_ns, uint64_t* wake_ns);
  // One that Next() gave has ended.
  void OnEnd(uint64_t now_ns);

 private:
  struct Waiting {
    std::shared_ptr<Task> task;
    uint64_t due_ns;  // of a late one, when it is one no more; 0: never was
  };
  uint64_t Draw(uint64_t below);

  uint64_t state_;
  std::vector<Waiting> waiting_;
  uint32_t num_running_ = 0;
  uint64_t patience_ends_ns_ = 0;  // of the last one that started
  uint64_t last_change_ns_ = 0;
};

}  // namespace tally::sim_driver
