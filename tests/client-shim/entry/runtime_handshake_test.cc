#include "client-shim/entry/runtime_handshake.h"

#include <gtest/gtest.h>

#include <cstdint>

namespace tally::client_shim {
namespace {

// The first two answers are constants; the third depends on every input. That the digest is the right one is shown by
// ShimCalls.StaticRuntimeAcceptsTheDriver: the runtime itself checks it.
TEST(RuntimeHandshake, CoversEveryInput) {
  HandshakeInput::Device device{};
  HandshakeInput input;
  input.driver_version = 13000;
  input.devices = {&device, 1};
  EXPECT_EQ(AnswerHandshake(13000, input).word[0], 0x3341181C03CB675Cu);
  EXPECT_EQ(AnswerHandshake(13001, input).word[0], 0x1841181C03CB675Cu);
  const uint64_t plain = AnswerHandshake(13002, input).word[0];
  const auto changes = [&](auto change) {
    HandshakeInput changed = input;
    change(&changed);
    return AnswerHandshake(13002, changed).word[0] != plain;
  };
  EXPECT_TRUE(changes([](HandshakeInput* i) { i->process_id = 1; }));
  EXPECT_TRUE(changes([](HandshakeInput* i) { i->thread_id = 1; }));
  EXPECT_TRUE(changes([](HandshakeInput* i) { i->unix_seconds = 1; }));
  EXPECT_TRUE(changes([](HandshakeInput* i) { i->check_function_address = 1; }));
  EXPECT_TRUE(changes([](HandshakeInput* i) { i->devices = {}; }));
  device.pci_bus = 1;
  EXPECT_NE(AnswerHandshake(13002, input).word[0], plain);
}

}  // namespace
}  // namespace tally::client_shim
