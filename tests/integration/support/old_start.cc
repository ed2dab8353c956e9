// Lets programs that are linked here start with glibc 2.31. Since 2.34 libc itself runs a program's constructors
// (nvcc's registration of kernels is one) and the start-up code that is linked in says so by giving no function for it.
extern "C" {

using Function = void (*)();
using Initialize = void (*)(int, char**, char**);

extern Initialize __init_array_start[] __attribute__((visibility("hidden")));
extern Initialize __init_array_end[] __attribute__((visibility("hidden")));

static void RunConstructors(int argc, char** argv, char** environment) {
  for (Initialize* function = __init_array_start; function != __init_array_end; ++function) {
    (*function)(argc, argv, environment);
  }
}

int __real___libc_start_main(int (*main)(int, char**, char**), int argc, char** argv, Initialize init, Function fini,
                             Function end_of_loader, void* stack_end);

int __wrap___libc_start_main(int (*main)(int, char**, char**), int argc, char** argv, Initialize, Function,
                             Function end_of_loader, void* stack_end) {
  return __real___libc_start_main(main, argc, argv, RunConstructors, nullptr, end_of_loader, stack_end);
}

}  // extern "C"
