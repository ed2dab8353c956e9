// Small modules to parse, and ways to look at them.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

#include "ptx-transforms/ptx_module.h"

namespace tally::ptx_transforms {

inline constexpr std::string_view kHeader = ".version 8.5\n.target sm_90\n.address_size 64\n";

inline std::string WithHeader(std::string_view items) { return std::string(kHeader) + std::string(items); }

// A kernel around some statements; they start on line 5.
inline std::string InKernel(std::string_view statements) {
  return WithHeader(".visible .entry kernel(.param .u64 p){\n" + std::string(statements) + "\n}\n");
}

inline Module MustParse(const std::string& text) {
  Result<Module> module = ParseModule(text);
  if (!module) {
    ADD_FAILURE() << module.error().ToString() << "\n" << text;
    return Module("");
  }
  for (const Diagnostic& warning : module->warnings) ADD_FAILURE() << warning.ToString() << "\n" << text;
  EXPECT_EQ(PrintModule(*module), text.substr(0, text.find('\0')));
  return std::move(*module);
}

inline const std::vector<Statement>& BodyOf(const Module& module) { return module.FindFunction("kernel")->body; }

template <typename T>
const T& NodeOf(const Module& module, size_t index) {
  return std::get<T>(BodyOf(module).at(index).node);
}

// The last item of a module.
template <typename T>
const T& LastItem(const Module& module) {
  return std::get<T>(module.items().back().node);
}

// "ptx:5:3: ..." of text that must not parse.
inline std::string ErrorOf(const std::string& text) {
  ParseOptions options;
  options.keep_unknown = false;
  const Result<Module> module = ParseModule(text, options);
  return module ? "parsed" : module.error().message();
}

inline std::string ReadText(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  EXPECT_TRUE(file) << path;
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

// Every .ptx file that nvcc made for us.
inline std::vector<std::filesystem::path> CorpusFiles() {
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(TALLY_TEST_PTX_CORPUS))
    if (entry.path().extension() == ".ptx") files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  return files;
}

// Marks everything, so that the printer writes it all afresh.
inline void MarkEdited(std::vector<Statement>& statements) {
  for (Statement& statement : statements) {
    statement.edited = true;
    if (auto* block = std::get_if<Block>(&statement.node)) MarkEdited(block->statements);
  }
}
inline void MarkEdited(Module& module) {
  for (Item& item : module.items()) {
    item.edited = true;
    if (auto* function = std::get_if<Function>(&item.node)) MarkEdited(function->body);
  }
}

}  // namespace tally::ptx_transforms
