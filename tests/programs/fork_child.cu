// fork() after CUDA was initialised: in the child every call gives "initialization error" at once (it neither hangs nor
// touches what belongs to the parent), a child that calls exec is a new program and works, and the parent works on.
#include "tests/programs/child_case.h"

using check::Results;

namespace {

void Reference(Results& results) {
  results.Add("codes in the child", std::vector<int>{cudaErrorInitializationError, cudaErrorInitializationError,
                                                     cudaErrorInitializationError});
  results.AddText("child that called exec", "23\n");
  results.Add("parent afterwards", std::vector<int>{5, 6, 7});
}

__global__ void Add(int* word, int value) { *word += value; }

int ExecutedCase() {
  check::DeviceBuffer<int> word(1);
  word.Zero();
  Add<<<1, 1>>>(word.get(), 23);
  CHECK_LAUNCH();
  printf("%d\n", word.Download()[0]);
  return 0;
}

void Device(Results& results) {
  check::DeviceBuffer<int> word(std::vector<int>{4});
  std::vector<int> parent;
  auto add_in_parent = [&] {
    Add<<<1, 1>>>(word.get(), 1);
    CHECK_LAUNCH();
    parent.push_back(word.Download()[0]);
  };
  add_in_parent();

  int ends[2];
  if (pipe(ends) != 0) check::Fail("pipe: %s", strerror(errno));
  pid_t child = fork();
  if (child < 0) check::Fail("fork: %s", strerror(errno));
  if (child == 0) {
    int codes[3], value;
    int* other;
    codes[0] = cudaMalloc(&other, 100);
    codes[1] = cudaMemcpy(&value, word.get(), sizeof(value), cudaMemcpyDeviceToHost);
    codes[2] = cudaDeviceSynchronize();
    ssize_t written = write(ends[1], codes, sizeof(codes));
    _exit(written == sizeof(codes) ? 0 : 1);
  }
  std::vector<int> codes(3, -1);
  if (read(ends[0], codes.data(), 3 * sizeof(int)) != 3 * sizeof(int)) check::Fail("the child said nothing");
  waitpid(child, nullptr, 0);
  results.Add("codes in the child", codes);
  add_in_parent();
  results.AddText("child that called exec", check::RunCase("executed").output);
  add_in_parent();
  results.Add("parent afterwards", parent);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc == 3 && strcmp(argv[1], "--case") == 0) return ExecutedCase();
  return check::RunProgram(argc, argv, Reference, Device);
}
