#include "client-shim/launcher/jupyter.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <filesystem>
#include <system_error>

#include "base/replaced_file.h"

namespace tally::launcher {
namespace {

std::string FromEnvironmentPath(const char* name, const char* below) {
  const char* value = std::getenv(name);
  return value != nullptr && value[0] == '/' ? std::string(value) + below : std::string();
}

// What is above ASCII stays as it is: paths are UTF-8, or Jupyter could not start them either.
std::string Quoted(const std::string& text) {
  std::string quoted = "\"";
  for (const char letter : text) {
    if (letter == '"' || letter == '\\') {
      quoted += '\\';
      quoted += letter;
    } else if (static_cast<unsigned char>(letter) < 0x20) {
      quoted += fmt::format("\\u{:04x}", static_cast<unsigned>(letter));
    } else {
      quoted += letter;
    }
  }
  return quoted + "\"";
}

// As Jupyter wants the names of kernels.
std::string DirectoryName(const std::string& tenant) {
  std::string name = tenant.empty() ? "tally" : "tally-" + tenant;
  std::ranges::transform(name, name.begin(), [](unsigned char letter) {
    const bool is_plain = std::isalnum(letter) != 0 || letter == '-' || letter == '_' || letter == '.';
    return is_plain ? static_cast<char>(std::tolower(letter)) : '-';
  });
  return name;
}

}  // namespace

std::string JupyterDataDirectory() {
  for (const auto& [name, below] :
       {std::pair{"JUPYTER_DATA_DIR", ""}, {"XDG_DATA_HOME", "/jupyter"}, {"HOME", "/.local/share/jupyter"}}) {
    if (std::string found = FromEnvironmentPath(name, below); !found.empty()) return found;
  }
  return "";
}

std::string KernelspecText(const std::vector<std::string>& arguments, const std::string& python,
                           const std::string& tenant) {
  std::string argv;
  const auto add = [&](const std::string& argument) { argv += (argv.empty() ? "" : ", ") + Quoted(argument); };
  for (const std::string& argument : arguments) add(argument);
  for (const std::string& argument :
       {std::string("--"), python, std::string("-m"), std::string("ipykernel_launcher"), std::string("-f")}) {
    add(argument);
  }
  add("{connection_file}");
  return fmt::format(
      "{{\n  \"argv\": [{}],\n  \"display_name\": {},\n  \"language\": \"python\",\n"
      "  \"metadata\": {{\"debugger\": true}}\n}}\n",
      argv, Quoted("Python 3 under Tally" + (tenant.empty() ? "" : " (" + tenant + ")")));
}

Result<std::string> WriteKernelspec(const std::string& data_directory, const std::vector<std::string>& arguments,
                                    const std::string& python, const std::string& tenant) {
  if (data_directory.empty()) {
    return Error(StatusCode::kFailedPrecondition, "there is no HOME: say with JUPYTER_DATA_DIR where kernels are kept");
  }
  const std::filesystem::path directory = std::filesystem::path(data_directory) / "kernels" / DirectoryName(tenant);
  std::error_code error;
  std::filesystem::create_directories(directory, error);
  if (error) {
    return Error(StatusCode::kPermissionDenied,
                 fmt::format("cannot make '{}': {}", directory.string(), error.message()));
  }
  const std::string path = (directory / "kernel.json").string();
  const Status written = ReplaceFile(path, KernelspecText(arguments, python, tenant), 0644);
  if (!written.ok()) return std::unexpected(written);
  return path;
}

}  // namespace tally::launcher
