#include "client-shim/state/link_results.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>

namespace tally::client_shim {
namespace {

TEST(LinkResults, OneTextIsAllOfTheLink) {
  LinkResults links;
  const PtxText text = std::make_shared<const std::string>("text");
  EXPECT_EQ(links.OnlyInput(1), nullptr);
  links.NoteInput(1, text);
  EXPECT_EQ(links.OnlyInput(1), text);
  links.NoteInput(1, text);
  EXPECT_EQ(links.OnlyInput(1), nullptr);
  links.NoteInput(2, nullptr);  // a cubin
  links.NoteInput(2, text);
  EXPECT_EQ(links.OnlyInput(2), nullptr);
  links.Forget(1);
  links.NoteInput(1, text);
  EXPECT_EQ(links.OnlyInput(1), text);
}

}  // namespace
}  // namespace tally::client_shim
