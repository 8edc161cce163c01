// Prints what a program that never uses CUDA has at the start of main: allocations so far, threads,
// open files. Its malloc asks dlsym for the next one, as allocators do.
#include <dirent.h>
#include <stdint.h>

#include "check.h"

static unsigned long allocations;
static void* (*next_malloc)(size_t);

void* malloc(size_t bytes) {
  ++allocations;
  if (next_malloc == NULL) next_malloc = (void* (*)(size_t))(uintptr_t)dlsym(RTLD_NEXT, "malloc");
  return next_malloc(bytes);
}

static int entries(const char* folder) {
  int count = 0;
  DIR* directory = opendir(folder);
  while (readdir(directory) != NULL) ++count;
  closedir(directory);
  return count;
}

int main(void) {
  const unsigned long before_main = allocations;
  const int threads = entries("/proc/self/task");
  const int files = entries("/proc/self/fd");
  printf("allocations %lu threads %d files %d\n", before_main, threads, files);
  return 0;
}
