#include "base/command_line.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <CLI/CLI.hpp>
#include <sstream>
#include <utility>
#include <vector>

namespace tally {
namespace {

using ::testing::HasSubstr;
using ::testing::internal::CaptureStderr;
using ::testing::internal::CaptureStdout;
using ::testing::internal::GetCapturedStderr;
using ::testing::internal::GetCapturedStdout;

// A program with an option, two commands, and a command in a command.
class Program {
 public:
  Program() : app_("shares things.", "tool") {
    app_.set_version_flag("--version", "tool 1");
    app_.require_subcommand(1);
    app_.fallthrough();
    app_.footer("\nExamples:\n  tool list");
    app_.add_option("--socket", socket_,
                    "where it listens, which is a long story that does not fit into a line of a terminal of any width "
                    "that people use")
        ->type_name("SOCKET");
    app_.add_option("--secret", socket_, "hidden")->group("");
    CLI::App* list = app_.add_subcommand("list", "what there is");
    list->add_flag("--all", all_, "more of it");
    list->add_flag("--order{size}", order_, "by what")->type_name("size|name");
    list->add_option("--count", count_, "how many")->type_name("COUNT")->check(CLI::Range(1, 9));
    CLI::App* set = app_.add_subcommand("set", "change it");
    set->require_subcommand(1);
    set->add_subcommand("level", "its level")->add_option("LEVEL", count_, "0 or 1")->type_name("0|1")->required();
  }

  std::optional<int> Parse(std::vector<std::string> words) {
    std::vector<char*> arguments = {const_cast<char*>("tool")};
    for (std::string& word : words) arguments.push_back(word.data());
    CaptureStdout();
    CaptureStderr();
    const auto exit_status = ParseCommandLine(app_, static_cast<int>(arguments.size()), arguments.data());
    out_ = GetCapturedStdout();
    error_ = GetCapturedStderr();
    return exit_status;
  }
  // Of a wrong command line.
  std::string Complaint(std::vector<std::string> words) {
    EXPECT_EQ(Parse(std::move(words)), std::optional(2));
    EXPECT_EQ(out_, "");
    return error_;
  }
  const std::string& out() const { return out_; }
  int count() const { return count_; }
  const std::string& order() const { return order_; }

 private:
  CLI::App app_;
  std::string socket_, order_, out_, error_;
  bool all_ = false;
  int count_ = 0;
};

TEST(CommandLine, GoesOnWithWhatIsRight) {
  Program program;
  EXPECT_EQ(program.Parse({"list", "--count", "3", "--socket", "x"}), std::nullopt);
  EXPECT_EQ(program.count(), 3);
}

TEST(CommandLine, AFlagMayBeGivenAValueAndTakesNoWordForIt) {
  for (const auto& [word, order] : {std::pair("--order", "size"), std::pair("--order=name", "name")}) {
    Program program;
    EXPECT_EQ(program.Parse({"list", word, "--count", "3"}), std::nullopt);
    EXPECT_EQ(program.order(), order);
    EXPECT_EQ(program.count(), 3);
  }
  EXPECT_THAT(Program().Complaint({"list", "--order", "name"}), HasSubstr("'name' is one argument too many"));
}

TEST(CommandLine, MistakesAreOneSentenceWithWhatWasMeant) {
  const auto complaint = [](std::vector<std::string> words) { return Program().Complaint(std::move(words)); };
  EXPECT_EQ(complaint({"lsit"}), "tool: there is no command 'lsit' (did you mean list?). 'tool --help' says more.\n");
  EXPECT_EQ(complaint({"--sokcet=x", "list"}),
            "tool: there is no option '--sokcet' (did you mean --socket?). 'tool --help' says more.\n");
  EXPECT_THAT(complaint({"list", "--al"}), HasSubstr("no option '--al' (did you mean --all?)"));
  EXPECT_THAT(complaint({"list", "--sockt", "x"}), HasSubstr("(did you mean --socket?)"));
  EXPECT_THAT(complaint({"set", "levle", "1"}), HasSubstr("no command 'levle' (did you mean level?)"));
  EXPECT_THAT(complaint({"frobnicate"}), HasSubstr("there is no command 'frobnicate'. "));
  EXPECT_THAT(complaint({"list", "more"}), HasSubstr("'more' is one argument too many"));
  EXPECT_THAT(complaint({}), HasSubstr("say what to do: a command"));
  EXPECT_THAT(complaint({"set"}), HasSubstr("say what to do: a command"));
  EXPECT_THAT(complaint({"set", "level"}), HasSubstr("LEVEL is required"));
  EXPECT_THAT(complaint({"list", "--count", "77"}), HasSubstr("--count: Value 77 not in range"));
}

TEST(CommandLine, HelpNamesTypesAndFitsATerminal) {
  Program program;
  EXPECT_EQ(program.Parse({"--help"}), std::optional(0));
  EXPECT_THAT(program.out(), HasSubstr("Usage: tool [OPTIONS] COMMAND\n"));
  EXPECT_THAT(program.out(), HasSubstr("  --socket SOCKET             where it listens, which"));
  EXPECT_THAT(program.out(), HasSubstr("\nCommands:\n  list "));
  EXPECT_THAT(program.out(), HasSubstr("change it\n\nExamples:\n  tool list\n"));
  EXPECT_THAT(program.out(), Not(HasSubstr("--secret")));
  EXPECT_THAT(program.out(), Not(HasSubstr("TEXT")));
  std::istringstream lines(program.out());
  for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 100u) << line;
  EXPECT_EQ(program.Parse({"--version"}), std::optional(0));
  EXPECT_EQ(program.out(), "tool 1\n");
}

TEST(CommandLine, HelpOfACommand) {
  Program program;
  EXPECT_EQ(program.Parse({"list", "--help"}), std::optional(0));
  EXPECT_THAT(program.out(), HasSubstr("Usage: tool list [OPTIONS]\n"));
  EXPECT_THAT(program.out(), Not(HasSubstr("Examples")));
  EXPECT_THAT(program.out(), HasSubstr("--order[=size|name]  "));
  EXPECT_THAT(program.out(), HasSubstr("--count COUNT  "));  // without the range that CLI11 appends
}

TEST(CommandLine, DescribesItself) {
  Program program;
  EXPECT_EQ(program.Parse({"--describe"}), std::optional(0));
  EXPECT_THAT(program.out(), HasSubstr("program\ttool\ttool [OPTIONS] COMMAND\tshares things.\n"));
  EXPECT_THAT(program.out(), HasSubstr("option\t--socket\tSOCKET\twhere"));
  EXPECT_THAT(program.out(), HasSubstr("command\ttool list\ttool list [OPTIONS]\twhat there is\n"));
  EXPECT_THAT(program.out(), HasSubstr("option\t--all\t\tmore of it\n"));
  EXPECT_THAT(program.out(), HasSubstr("option\t--order\t[=size|name]\tby what\n"));
  EXPECT_THAT(program.out(), HasSubstr("command\ttool set level\ttool set level [OPTIONS] LEVEL\tits level\n"));
  EXPECT_THAT(program.out(), HasSubstr("argument\tLEVEL\t0|1\t0 or 1\n"));
  EXPECT_THAT(program.out(), HasSubstr("footer\t\\nExamples:\\n  tool list\n"));
  EXPECT_THAT(program.out(), Not(HasSubstr("--secret")));
}

}  // namespace
}  // namespace tally
