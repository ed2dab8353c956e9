#include "base/event_loop.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <thread>

namespace tally {
namespace {

TEST(EventLoop, ServesDescriptorsTasksAndDelaysOnOneThread) {
  auto loop = EventLoop::Create();
  ASSERT_TRUE(loop);
  int pipe_fds[2];
  ASSERT_EQ(::pipe(pipe_fds), 0);
  UniqueFd reader(pipe_fds[0]);
  UniqueFd writer(pipe_fds[1]);
  std::vector<std::string> seen;
  ASSERT_TRUE((*loop)
                  ->Watch(reader.get(),
                          [&] {
                            char byte = 0;
                            ASSERT_EQ(::read(reader.get(), &byte, 1), 1);
                            seen.push_back("descriptor");
                            (*loop)->PostDelayed(std::chrono::milliseconds(1), [&] {
                              seen.push_back("delayed");
                              (*loop)->Quit();
                            });
                          })
                  .ok());
  std::thread other([&] {
    (*loop)->Post([&] {
      seen.push_back("posted");
      ASSERT_EQ(::write(writer.get(), "x", 1), 1);
    });
  });
  (*loop)->Run();
  other.join();
  EXPECT_EQ(seen, (std::vector<std::string>{"posted", "descriptor", "delayed"}));
}

TEST(EventLoop, ACallbackMayUnwatchItself) {
  auto loop = EventLoop::Create();
  int pipe_fds[2];
  ASSERT_EQ(::pipe(pipe_fds), 0);
  UniqueFd reader(pipe_fds[0]);
  UniqueFd writer(pipe_fds[1]);
  int calls = 0;
  ASSERT_TRUE((*loop)
                  ->Watch(reader.get(),
                          [&] {
                            ++calls;
                            (*loop)->Unwatch(reader.get());
                            (*loop)->PostDelayed(std::chrono::milliseconds(2), [&] { (*loop)->Quit(); });
                          })
                  .ok());
  ASSERT_EQ(::write(writer.get(), "xy", 2), 2);
  (*loop)->Run();
  EXPECT_EQ(calls, 1);
}

TEST(EventLoop, ADescriptorThatAnotherCallbackUnwatchedIsNotServed) {
  auto loop = EventLoop::Create();
  int pipe_fds[2][2];
  UniqueFd readers[2], writers[2];
  int calls = 0;
  for (int i = 0; i < 2; ++i) {
    ASSERT_EQ(::pipe(pipe_fds[i]), 0);
    readers[i] = UniqueFd(pipe_fds[i][0]);
    writers[i] = UniqueFd(pipe_fds[i][1]);
    ASSERT_EQ(::write(writers[i].get(), "x", 1), 1);
    ASSERT_TRUE((*loop)
                    ->Watch(readers[i].get(),
                            [&] {
                              ++calls;
                              for (const UniqueFd& reader : readers) (*loop)->Unwatch(reader.get());
                              (*loop)->Quit();
                            })
                    .ok());
  }
  (*loop)->Run();  // both are ready at once
  EXPECT_EQ(calls, 1);
}

TEST(EventLoop, ADelayedTaskWaitsForItsTime) {
  auto loop = EventLoop::Create();
  bool has_run = false;
  (*loop)->PostDelayed(std::chrono::hours(1), [&] { has_run = true; });
  (*loop)->PostDelayed(std::chrono::milliseconds(1), [&] { (*loop)->Quit(); });
  (*loop)->Run();
  EXPECT_FALSE(has_run);
}

}  // namespace
}  // namespace tally
