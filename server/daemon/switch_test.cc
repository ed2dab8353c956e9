#include "server/daemon/switch_test.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

#include "base/log.h"

namespace tally::server {
namespace {

constexpr size_t kMostOutput = 64 << 10;

}  // namespace

std::unique_ptr<SwitchTest> SwitchTest::Start(EventLoop& loop, const std::string& program,
                                              std::function<void(std::optional<control::SwitchFigures>)> done) {
  if (::access(program.c_str(), X_OK) != 0) return nullptr;
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return nullptr;
  std::unique_ptr<SwitchTest> test(new SwitchTest(loop, std::move(done)));
  test->output_ = UniqueFd(ends[0]);
  const UniqueFd write_end(ends[1]);
  ::fcntl(test->output_.get(), F_SETFL, O_NONBLOCK);
  std::string name = program, json = "--json";
  char* arguments[] = {name.data(), json.data(), nullptr};
  posix_spawn_file_actions_t files;
  posix_spawnattr_t attributes;
  ::posix_spawn_file_actions_init(&files);
  ::posix_spawnattr_init(&attributes);
  ::posix_spawn_file_actions_addopen(&files, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  ::posix_spawn_file_actions_adddup2(&files, write_end.get(), STDOUT_FILENO);
  sigset_t none;
  ::sigemptyset(&none);
  ::posix_spawnattr_setsigmask(&attributes, &none);
  ::posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK);
  const int error = ::posix_spawn(&test->pid_, program.c_str(), &files, &attributes, arguments, environ);
  ::posix_spawnattr_destroy(&attributes);
  ::posix_spawn_file_actions_destroy(&files);
  if (error != 0) test->pid_ = 0;
  const Status watched = loop.Watch(test->output_.get(), [test = test.get()] { test->OnOutput(); });
  if (error != 0 || !watched.ok()) return nullptr;
  return test;
}

SwitchTest::~SwitchTest() {
  if (output_.valid()) loop_.Unwatch(output_.get());
  if (pid_ == 0) return;
  ::kill(pid_, SIGKILL);
  ::waitpid(pid_, nullptr, 0);
}

void SwitchTest::OnOutput() {
  char bytes[4096];
  const ssize_t size = ::read(output_.get(), bytes, sizeof(bytes));
  if (size < 0) return;
  if (size > 0) {
    if (text_.size() < kMostOutput) text_.append(bytes, static_cast<size_t>(size));
    return;
  }
  loop_.Unwatch(output_.get());
  output_.Reset();
  ::waitpid(pid_, nullptr, 0);
  pid_ = 0;
  const auto figures = control::ParseSwitchFigures(text_);
  if (!figures) LOG_WARNING("tally-switch-test could not measure how soon the GPU can be taken from best-effort work");
  done_(figures);
}

}  // namespace tally::server
