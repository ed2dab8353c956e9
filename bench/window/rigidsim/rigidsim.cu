// A rigid-body simulation of many environments: many small kernels in one stream. See Usage().
#include <chrono>
#include <cstdio>
#include <memory>
#include <set>
#include <string>

#include "bench/window/rigidsim/acs_sw.cuh"
#include "bench/window/rigidsim/plans.h"

namespace rigidsim {
namespace {

using Clock = std::chrono::steady_clock;

struct Options {
  std::string plan = "ant", json_path;
  std::vector<std::string> modes;
  int environments = 1024, steps = 100, repetitions = 10;
  double seconds = 0;
  bool is_passive = false;
  AcsOptions acs;
};

const char* const kUsage = R"(rigidsim --plan PLAN [OPTIONS]: a rigid-body simulation as a chain of many small kernels

A step is four substeps: actuators, motion, kernels per kind of joint and of contact, velocities; then observations,
reward, and a look at which contacts are near. Contacts that are not near are not launched, so the list of launches
changes from step to step. The host learns what was near two steps later.

  --plan ant|grasp|humanoid|cheetah|walker2d   (default ant)
  --mode MODE[,MODE...]   each mode in turn; all must end with the same bits (default serial)
      serial          all launches in one stream
      graph           the serial order captured once per list of launches, then replayed
      graph-per-step  captured, instantiated and destroyed in each step
      acs-sw          the ACS paper's software window over declared segments, a thread and a stream per running kernel
      host            no GPU: the same work in loops, the reference
      host-all        no GPU: contacts that are not near are launched, too; they must change nothing
      shuffle         no GPU: in random orders that the declared segments allow
  --environments N    1024 to 4096 make sense on a GPU (default 1024)
  --steps N           of an episode, which is what is repeated (default 100)
  --repetitions N     timed episodes after one that is not timed (default 10)
  --seconds S         no more repetitions of a mode after S seconds (default: no limit)
  --window N          of acs-sw (default 32)
  --streams N         of acs-sw (default 8)
  --completion synchronize|query   how acs-sw waits for a kernel (default synchronize, as published)
  --passive           actuators do nothing: the energy may not grow (checked)
  --json FILE         results with all samples

Prints microseconds per step from the first launch to the last completion, over repetitions. Parallelism is launches
over the longest chain of a step's dependences (read after write, write after read, write after write), from what the
launches declare. Each repetition must end with the same bits, with quaternions of length 1 and joints that hold.
The last line is "checksum: <16 hex digits> OK" or "FAILED: <reason>".
)";

struct Row {
  std::string mode;
  std::vector<double> us_per_step;  // sorted
  double Quantile(double q) const {
    if (us_per_step.empty()) return 0;
    return us_per_step[std::min(us_per_step.size() - 1,
                                static_cast<size_t>(q * static_cast<double>(us_per_step.size())))];
  }
};
struct Outcome {
  uint64_t checksum = 0;
  Parallelism parallelism;  // of all steps of an episode
  size_t num_lists = 0;
  int num_changes = 0;  // steps with another list than the one before
  double worst_joint = 0, first_energy = 0, last_energy = 0;
};

// Metres between the two sides of the joint that holds worst.
double WorstJoint(const Plan& plan, const std::vector<float4>& position, const std::vector<float4>& rotation,
                  int environments) {
  double worst = 0;
  for (const Joint& j : plan.joints) {
    if (j.b < 0) continue;
    for (int e = 0; e < environments; ++e) {
      auto anchor = [&](int body, float3 local) {
        const size_t at = static_cast<size_t>(body * environments + e);
        return Vector(position[at]) + Rotated(rotation[at], local);
      };
      worst = std::max<double>(worst, Length(anchor(j.a, j.anchor_a) - anchor(j.b, j.anchor_b)));
    }
  }
  return worst;
}

double MeanOf(const std::vector<float>& values) {
  double sum = 0;
  for (const float value : values) sum += value;
  return sum / static_cast<double>(values.size());
}

class Episode {
 public:
  Episode(int steps, bool launches_all, Simulation* simulation, Mode* mode)
      : steps_(steps), launches_all_(launches_all), simulation_(*simulation), mode_(*mode) {}

  // Microseconds per step.
  double Run(std::vector<const StepList*>* lists) {
    const Clock::time_point begin = Clock::now();
    for (int step = 0; step < steps_; ++step) {
      const StepList& list = simulation_.Step(ActiveGroups(step), step == 0);
      lists->push_back(&list);
      mode_.Issue(list);
      mode_.ReadNear(simulation_.buffers().near_chunks, static_cast<size_t>(step) % Mode::kSlots);
    }
    mode_.Finish();
    return std::chrono::duration<double, std::micro>(Clock::now() - begin).count() / steps_;
  }

 private:
  uint32_t ActiveGroups(int step) {
    if (step < kNearLag) return simulation_.all_groups();
    const std::vector<int>& words = mode_.AwaitNear(static_cast<size_t>(step - kNearLag) % Mode::kSlots);
    uint32_t active = 0;
    for (size_t i = 0; i < words.size(); ++i) active |= uint32_t{words[i] != 0} << i / kNearChunks;
    return launches_all_ ? simulation_.all_groups() : active;
  }

  const int steps_;
  const bool launches_all_;
  Simulation& simulation_;
  Mode& mode_;
};

// Of everything that a learner sees and of the state; fails where the physics cannot be right.
uint64_t CheckState(const Simulation& simulation, Outcome* outcome) {
  const Buffers& b = simulation.buffers();
  const Memory& memory = simulation.memory();
  check::Checksum checksum;
  auto add = [&checksum](const auto& values) { checksum.Add(values.data(), values.size() * sizeof(values[0])); };
  const std::vector<float4> position = memory.Contents(b.position), rotation = memory.Contents(b.rotation);
  for (const Array<float4>* array : {&b.position, &b.rotation, &b.linear_velocity, &b.angular_velocity}) {
    const std::vector<float4> values = memory.Contents(*array);
    for (const float4& v : values) {
      if (!std::isfinite(v.x + v.y + v.z + v.w)) check::Fail("a body's state is not finite");
    }
    add(values);
  }
  for (const float4& q : rotation) {
    if (std::fabs(q.x * q.x + q.y * q.y + q.z * q.z + q.w * q.w - 1) > 1e-4f) check::Fail("a rotation is none");
  }
  add(memory.Contents(b.observations));
  add(memory.Contents(b.reward));
  add(memory.Contents(b.returns));
  outcome->worst_joint = WorstJoint(simulation.plan(), position, rotation, b.environments);
  if (outcome->worst_joint > 0.1) check::Fail("a joint is %.3f m apart", outcome->worst_joint);
  outcome->last_energy = MeanOf(memory.Contents(b.energy));
  return checksum.value();
}

std::unique_ptr<Mode> NewMode(const std::string& name, const Options& options) {
  if (name == "host" || name == "host-all" || name == "shuffle") return std::make_unique<HostMode>(name == "shuffle");
  if (name == "serial") return std::make_unique<SerialMode>();
  if (name == "graph" || name == "graph-per-step") return std::make_unique<GraphMode>(name == "graph-per-step");
  if (name == "acs-sw") return std::make_unique<AcsSoftwareMode>(options.acs);
  return nullptr;
}

Outcome RunMode(const Options& options, const Plan& plan, const std::string& name, Row* row) {
  const bool on_device = name != "host" && name != "host-all" && name != "shuffle";
  const std::unique_ptr<Mode> mode = NewMode(name, options);
  if (mode == nullptr) check::Fail("no mode is called %s; see --help", name.c_str());
  Simulation simulation(plan, options.environments, on_device);
  const bool launches_all = name == "host-all";
  Episode episode(options.steps, launches_all, &simulation, mode.get());
  Outcome outcome;
  if (options.is_passive) {
    std::vector<const StepList*> unused;
    Episode(1, launches_all, &simulation, mode.get()).Run(&unused);
    CheckState(simulation, &outcome);
    outcome.first_energy = outcome.last_energy;
  }
  const Clock::time_point begin = Clock::now();
  for (int repetition = 0; repetition <= options.repetitions; ++repetition) {
    const double elapsed = std::chrono::duration<double>(Clock::now() - begin).count();
    if (options.seconds > 0 && repetition > 1 && elapsed > options.seconds) break;
    std::vector<const StepList*> lists;
    const double us = episode.Run(&lists);
    const uint64_t checksum = CheckState(simulation, &outcome);
    if (repetition > 0) {
      if (checksum != outcome.checksum) check::Fail("%s: repetition %d ends with other bits", name.c_str(), repetition);
      row->us_per_step.push_back(us);
      continue;
    }
    outcome.checksum = checksum;
    std::map<const StepList*, int> uses;
    for (size_t i = 0; i < lists.size(); ++i) {
      ++uses[lists[i]];
      outcome.num_changes += i > 0 && lists[i] != lists[i - 1];
    }
    outcome.num_lists = uses.size();
    for (const auto& [list, times] : uses) outcome.parallelism.Add(Analyse(*list), times);
  }
  std::sort(row->us_per_step.begin(), row->us_per_step.end());
  if (options.is_passive && outcome.last_energy > outcome.first_energy + 1e-3 * std::fabs(outcome.first_energy)) {
    check::Fail("energy grew from %g J to %g J, and nothing drives", outcome.first_energy, outcome.last_energy);
  }
  return outcome;
}

void Print(const Options& options, const Plan& plan, const Outcome& outcome, const std::vector<Row>& rows) {
  const Parallelism& p = outcome.parallelism;
  printf("plan %s: %zu bodies, %zu joints, %d actions, %zu contact groups; %d environments, episodes of %d steps\n",
         plan.name.c_str(), plan.bodies.size(), plan.joints.size(), plan.num_actions, plan.contact_groups.size(),
         options.environments, options.steps);
  printf("kernels per step %.1f, %zu lists, %d changes; parallelism %.2f (read after write only: %.2f), at most %d\n",
         p.launches / options.steps, outcome.num_lists, outcome.num_changes, p.Mean(), p.MeanRawOnly(), p.widest);
  printf("conflicts per step: %.0f read after write, %.0f write after read, %.0f write after write\n",
         p.raw / options.steps, p.war / options.steps, p.waw / options.steps);
  printf("joints hold within %.1f mm; mean energy at the end %.4g J\n", outcome.worst_joint * 1000,
         outcome.last_energy);
  printf("%-15s %12s %10s %10s  repetitions\n", "mode", "us/step", "p10", "p90");
  for (const Row& row : rows) {
    printf("%-15s %12.2f %10.2f %10.2f  %zu\n", row.mode.c_str(), row.Quantile(0.5), row.Quantile(0.1),
           row.Quantile(0.9), row.us_per_step.size());
  }
}

void WriteJson(const Options& options, const Plan& plan, const Outcome& outcome, const std::vector<Row>& rows) {
  FILE* file = fopen(options.json_path.c_str(), "w");
  if (file == nullptr) check::Fail("cannot write %s", options.json_path.c_str());
  const Parallelism& p = outcome.parallelism;
  fprintf(file, "{\"plan\": \"%s\", \"environments\": %d, \"steps\": %d, \"kernels_per_step\": %.6g, ",
          plan.name.c_str(), options.environments, options.steps, p.launches / options.steps);
  fprintf(file, "\"lists\": %zu, \"list_changes\": %d, \"parallelism\": %.6g, \"parallelism_raw_only\": %.6g, ",
          outcome.num_lists, outcome.num_changes, p.Mean(), p.MeanRawOnly());
  fprintf(file, "\"parallelism_max\": %d, \"raw\": %.6g, \"war\": %.6g, \"waw\": %.6g, ", p.widest,
          p.raw / options.steps, p.war / options.steps, p.waw / options.steps);
  fprintf(
      file,
      "\"acs_window\": %d, \"acs_streams\": %d, \"acs_completion\": \"%s\", \"checksum\": \"%016llx\", \"modes\": {",
      options.acs.window, options.acs.streams, options.acs.queries ? "query" : "synchronize",
      static_cast<unsigned long long>(outcome.checksum));
  const char* separator = "";
  for (const Row& row : rows) {
    fprintf(file, "%s\n  \"%s\": [", separator, row.mode.c_str());
    for (size_t i = 0; i < row.us_per_step.size(); ++i) fprintf(file, "%s%.6g", i == 0 ? "" : ", ", row.us_per_step[i]);
    fprintf(file, "]");
    separator = ",";
  }
  fprintf(file, "\n}}\n");
  if (fclose(file) != 0) check::Fail("cannot write %s", options.json_path.c_str());
}

Options ReadOptions(int argc, char** argv) {
  Options options;
  std::string modes = "serial";
  for (int i = 1; i < argc; ++i) {
    const std::string name = argv[i];
    if (name == "--help" || name == "-h") {
      fputs(kUsage, stdout);
      exit(0);
    }
    if (name == "--passive") {
      options.is_passive = true;
      continue;
    }
    if (i + 1 >= argc) check::Fail("%s: unknown, or needs a value; see --help", argv[i]);
    const std::string value = argv[++i];
    const std::map<std::string, std::string*> texts = {
        {"--plan", &options.plan}, {"--mode", &modes}, {"--json", &options.json_path}};
    const std::map<std::string, int*> numbers = {{"--environments", &options.environments},
                                                 {"--steps", &options.steps},
                                                 {"--repetitions", &options.repetitions},
                                                 {"--window", &options.acs.window},
                                                 {"--streams", &options.acs.streams}};
    char* end = nullptr;
    const double number = strtod(value.c_str(), &end);
    const bool is_number = !value.empty() && *end == '\0' && number > 0 && number <= 1e6;
    if (const auto text = texts.find(name); text != texts.end()) {
      *text->second = value;
    } else if (name == "--completion" && (value == "query" || value == "synchronize")) {
      options.acs.queries = value == "query";
    } else if (const auto whole = numbers.find(name); whole != numbers.end() && is_number && number >= 1) {
      *whole->second = static_cast<int>(number);
    } else if (name == "--seconds" && is_number) {
      options.seconds = number;
    } else {
      check::Fail("%s %s: not understood; see --help", name.c_str(), value.c_str());
    }
  }
  for (size_t begin = 0; begin <= modes.size();) {
    const size_t comma = std::min(modes.find(',', begin), modes.size());
    options.modes.push_back(modes.substr(begin, comma - begin));
    begin = comma + 1;
  }
  // Rows times environments are counted in an int; a stream or a slot more is no use.
  if (options.environments > 65536) check::Fail("--environments: at most 65536");
  if (options.acs.window > 1024 || options.acs.streams > 64)
    check::Fail("--window: at most 1024; --streams: at most 64");
  return options;
}

Plan FindPlan(const Options& options) {
  for (const NamedPlan& named : kPlans) {
    if (options.plan != named.name) continue;
    Plan plan = named.make();
    for (Joint& joint : plan.joints) joint.gear = options.is_passive ? 0 : joint.gear;
    return plan;
  }
  check::Fail("no plan is called %s; see --help", options.plan.c_str());
}

int Main(int argc, char** argv) {
  const Options options = ReadOptions(argc, argv);
  const Plan plan = FindPlan(options);
  Outcome first;
  std::vector<Row> rows;
  for (const std::string& mode : options.modes) {
    rows.push_back({mode, {}});
    const Outcome outcome = RunMode(options, plan, mode, &rows.back());
    if (rows.size() == 1) first = outcome;
    if (outcome.checksum != first.checksum) {
      check::Fail("%s ends with %016llx, %s with %016llx", mode.c_str(),
                  static_cast<unsigned long long>(outcome.checksum), options.modes[0].c_str(),
                  static_cast<unsigned long long>(first.checksum));
    }
  }
  Print(options, plan, first, rows);
  if (!options.json_path.empty()) WriteJson(options, plan, first, rows);
  printf("checksum: %016llx OK\n", static_cast<unsigned long long>(first.checksum));
  return fflush(stdout) == 0 ? 0 : 1;
}

}  // namespace
}  // namespace rigidsim

int main(int argc, char** argv) { return rigidsim::Main(argc, argv); }
