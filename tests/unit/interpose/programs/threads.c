// Threads that all look up and call for the first time at once: each gets the same addresses, and
// every launch passes the gate.
#include <pthread.h>

#include "check.h"

enum { kThreads = 8, kRounds = 200 };

static pthread_barrier_t start;
static void* cuda;

struct Seen {
  void* launch_kernel;
  void* warp;
};

static void* look_up_and_launch(void* seen_by_thread) {
  struct Seen* seen = seen_by_thread;
  pthread_barrier_wait(&start);
  for (int i = 0; i < kRounds; ++i) {
    seen->launch_kernel = dlsym(cuda, "cuLaunchKernel");
    seen->warp = dlsym(cuda, "cuLaunchWeft");
    CHECK(launch(seen->launch_kernel) == 0);
  }
  return NULL;
}

int main(void) {
  pthread_t threads[kThreads];
  struct Seen seen[kThreads];
  CHECK(pthread_barrier_init(&start, NULL, kThreads) == 0);
  cuda = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  for (int i = 0; i < kThreads; ++i) {
    CHECK(pthread_create(&threads[i], NULL, look_up_and_launch, &seen[i]) == 0);
  }
  for (int i = 0; i < kThreads; ++i) CHECK(pthread_join(threads[i], NULL) == 0);
  for (int i = 0; i < kThreads; ++i) {
    CHECK(IS_WRAPPER(seen[i].launch_kernel) && seen[i].launch_kernel == seen[0].launch_kernel);
  }
  size_t gated = 0, unknown = 0;
  CHECK(((InfoFn)dlsym(cuda, "cuMemGetInfo_v2"))(&gated, &unknown) == 0);
  CHECK(gated == kThreads * kRounds);
  return 0;
}
