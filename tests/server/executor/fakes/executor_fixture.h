// An executor over the fake driver, and clients of it, in one process.
#pragma once

#include <gtest/gtest.h>

#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "server/executor/executor.h"
#include "server/executor/executor_config.h"
#include "tests/server/executor/fakes/fake_driver.h"
#include "tests/server/executor/fakes/scripted_client.h"

namespace tally::fakes {

class ExecutorFixture : public ::testing::Test {
 protected:
  virtual void Configure(server::ExecutorConfig&) {}
  virtual void Identify(server::SessionIdentity&) {}

  void SetUp() override {
    server::ExecutorConfig config;
    config.domain_name = "test";
    config.driver_table_for_testing = &driver_.table();
    config.on_session_end = [this](const server::SessionEnd& end) {
      const std::lock_guard lock(mutex_);
      ends_.push_back(end);
      ended_.notify_all();
    };
    config.on_fault = [this](const std::string& reason) {
      const std::lock_guard lock(mutex_);
      faults_.push_back(reason);
    };
    Configure(config);
    auto executor = server::Executor::Create(config);
    ASSERT_TRUE(executor) << executor.error().ToString();
    executor_ = std::move(*executor);
  }

  // Attached, unless the executor refuses.
  std::unique_ptr<ScriptedClient> Connect(uid_t uid = 0) {
    server::SessionIdentity identity;
    identity.uid = uid;
    return Connect(std::move(identity));
  }
  std::unique_ptr<ScriptedClient> Connect(server::SessionIdentity identity) {
    auto pair = CreateSocketPair();
    if (!pair) return nullptr;
    identity.session_id = ++last_session_;
    identity.tenant_name = "scripted";
    Identify(identity);
    if (!executor_->AddSession(std::move(pair->first), identity).ok()) return nullptr;
    auto client = std::make_unique<ScriptedClient>(std::move(pair->second));
    return client->Attach() ? std::move(client) : nullptr;
  }

  // Until so many sessions have ended, with everything they made.
  void WaitForEnds(size_t count) {
    std::unique_lock lock(mutex_);
    ended_.wait(lock, [&] { return ends_.size() >= count; });
  }
  std::vector<server::SessionEnd> ends() {
    const std::lock_guard lock(mutex_);
    return ends_;
  }

  FakeDriver driver_;
  std::mutex mutex_;
  std::condition_variable ended_;
  std::vector<server::SessionEnd> ends_;
  std::vector<std::string> faults_;
  uint64_t last_session_ = 0;
  std::unique_ptr<server::Executor> executor_;
};

inline constexpr uint64_t kFirstEvent = shm::MakeHandle(shm::HandleKind::kEvent, 1, false, 0);

// Loads a module of PTX text and finds `name` in it. 0: failed.
inline uint64_t LoadKernel(ScriptedChannel& channel, const std::string& name, uint64_t* module = nullptr,
                           uint32_t image = 1,
                           const std::string& text = ".version 8.0\n.target sm_80\n.address_size 64\n",
                           uint32_t context = 0) {
  const shm::WriteImage piece{image, static_cast<uint32_t>(text.size() + 1), text.size() + 1, 0};
  channel.Post(shm::Op::kWriteImage, Payload().Put(piece).PutBytes(text.c_str(), text.size() + 1), context);
  shm::LoadImage load{};
  load.image = image;
  load.format = static_cast<uint32_t>(shm::ImageFormat::kPtx);
  const Answer loaded = channel.Call(shm::Op::kLoadModule, Payload().Put(load), context);
  if (loaded.result != 0) return 0;
  const auto handle = loaded.Get<shm::LoadedImage>().handle;
  if (module != nullptr) *module = handle;
  const shm::GetByName get{handle, static_cast<uint32_t>(name.size()), 0};
  const Answer found =
      channel.Call(shm::Op::kGetFunction, Payload().Put(get).PutBytes(name.data(), name.size()), context);
  return found.result == 0 ? found.Get<shm::KernelDescription>().handle : 0;
}

inline Payload LaunchOf(uint64_t function, uint64_t stream, const std::string& parameters = std::string(24, 'p')) {
  shm::Launch launch{};
  launch.function = function;
  launch.stream = stream;
  for (int i = 0; i < 3; ++i) launch.grid[i] = launch.block[i] = 1;
  launch.parameter_bytes = static_cast<uint32_t>(parameters.size());
  return Payload().Put(launch).PutBytes(parameters.data(), parameters.size());
}

inline uint64_t Allocate(ScriptedChannel& channel, uint64_t size_bytes, uint32_t context = 0) {
  return channel.Call(shm::Op::kAllocate, Payload().Put(shm::Allocate{size_bytes, 0, 0, 0}), context).Get<uint64_t>();
}

}  // namespace tally::fakes
