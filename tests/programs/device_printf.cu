// printf from a kernel arrives on the program's own stdout, by the time of the next synchronisation, in the order in
// which one thread printed it. The program runs itself with stdout in a pipe and reads what came out.
#include "tests/programs/child_case.h"

using check::Results;

namespace {

std::string Expected() {
  std::string text = "before\n";
  for (int i = 0; i < 5; ++i) {
    char line[200];
    snprintf(line, sizeof(line), "line %d: %5.2f %s %c %llx %% %-6u|\n", i, i * 0.5, i % 2 ? "odd" : "even", 'a' + i,
             0x123456789abcdefull * (i + 1), 7u * i);
    text += line;
  }
  text += "no arguments\nbetween\n64\n";
  return text;
}

void Reference(Results& results) {
  results.AddText("output", Expected());
  results.AddValue<int>("exit status", 0);
}

__global__ void Print() {
  for (int i = 0; i < 5; ++i) {
    printf("line %d: %5.2f %s %c %llx %% %-6u|\n", i, i * 0.5, i % 2 ? "odd" : "even", 'a' + i,
           0x123456789abcdefull * (i + 1), 7u * i);
  }
  printf("no arguments\n");
}

// Many threads at once: the order is free, so only the number of lines is looked at (by the parent: 64 times "x").
__global__ void PrintFromAll() { printf("x\n"); }

int PrintCase() {
  printf("before\n");
  fflush(stdout);
  Print<<<1, 1>>>();
  CHECK_LAUNCH();
  CHECK_CUDA(cudaDeviceSynchronize());
  printf("between\n");
  fflush(stdout);
  PrintFromAll<<<2, 32>>>();
  CHECK_LAUNCH();
  CHECK_CUDA(cudaDeviceSynchronize());
  fflush(stdout);
  return 0;
}

void Device(Results& results) {
  check::ChildResult child = check::RunCase("print");
  std::string output = child.output;
  int num_lines = 0;
  while (output.size() >= 2 && output.compare(output.size() - 2, 2, "x\n") == 0) {
    output.resize(output.size() - 2);
    ++num_lines;
  }
  results.AddText("output", output + std::to_string(num_lines) + "\n");
  results.AddValue<int>("exit status", child.exit_status);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc == 3 && strcmp(argv[1], "--case") == 0) return PrintCase();
  return check::RunProgram(argc, argv, Reference, Device);
}
