// Lets a preload that was built against a recent glibc run in a job's container with an older one.
//
// A shared library names a version for each function it takes from libc, and the loader refuses it,
// and with it the job, where that version is missing. Here are the functions that the shim,
// libstdc++ and libgcc want in a version newer than 2.28. Most only moved from libpthread into libc
// with 2.34. Defined here, hidden, they are bound to at link time; what they do is found at run
// time.
//
// exports_check.py fails where a preload comes to want a newer version again.

#include <dlfcn.h>
#include <link.h>
#include <pthread.h>
#include <signal.h>
#include <sys/random.h>

#include <atomic>
#include <cerrno>
#include <cstdint>

#include "interpose/elf_image.h"

namespace plexrl::interpose {
namespace {

void* thread_function(const char* name) noexcept {
  if (void* found = ElfImage::loaded("libc.so.").symbol(name)) return found;
  return ElfImage::loaded("libpthread.so.").symbol(name);
}

}  // namespace
}  // namespace plexrl::interpose

extern "C" {

// A function that libc or libpthread has; `otherwise` is the answer in a process without threads
// under a glibc before 2.34, which has none.
#define PLEXRL_FORWARD(result, symbol, params, args, otherwise)                         \
  result symbol params {                                                                \
    using Function = result(*) params;                                                  \
    static constinit std::atomic<Function> known{nullptr};                              \
    Function real = known.load(std::memory_order_relaxed);                              \
    if (real == nullptr) [[unlikely]] {                                                 \
      real = reinterpret_cast<Function>(::plexrl::interpose::thread_function(#symbol)); \
      known.store(real, std::memory_order_relaxed);                                     \
    }                                                                                   \
    return real != nullptr ? real args : otherwise;                                     \
  }

PLEXRL_FORWARD(int, pthread_create,
               (pthread_t * thread, const pthread_attr_t* attributes, void* (*start)(void*),
                void* argument),
               (thread, attributes, start, argument), ENOSYS)
PLEXRL_FORWARD(int, pthread_detach, (pthread_t thread), (thread), ENOSYS)
PLEXRL_FORWARD(int, pthread_join, (pthread_t thread, void** result), (thread, result), ENOSYS)
PLEXRL_FORWARD(int, pthread_sigmask, (int how, const sigset_t* set, sigset_t* old_set),
               (how, set, old_set), ENOSYS)
// Without threads a mutex is free, and locking it does nothing.
PLEXRL_FORWARD(int, pthread_mutex_trylock, (pthread_mutex_t * mutex), (mutex), 0)
PLEXRL_FORWARD(int, pthread_key_create, (pthread_key_t * key, void (*destructor)(void*)),
               (key, destructor), ENOSYS)
PLEXRL_FORWARD(int, pthread_key_delete, (pthread_key_t key), (key), ENOSYS)
PLEXRL_FORWARD(void*, pthread_getspecific, (pthread_key_t key), (key), nullptr)
PLEXRL_FORWARD(int, pthread_setspecific, (pthread_key_t key, const void* value), (key, value),
               ENOSYS)
PLEXRL_FORWARD(int, pthread_once, (pthread_once_t * control, void (*initialise)(void)),
               (control, initialise), ENOSYS)

// libstdc++ takes its presence for "this process may have threads"; nobody calls it by this name.
int __pthread_key_create(pthread_key_t* key, void (*destructor)(void*)) {
  return pthread_key_create(key, destructor);
}

// libstdc++ leaves out atomic operations where this is true (since 2.32): always use them.
char __libc_single_threaded = 0;

// std::random_device (since 2.36).
uint32_t arc4random() {
  uint32_t word = 0;
  while (getrandom(&word, sizeof(word), 0) != sizeof(word)) {
  }
  return word;
}

#if __GLIBC_PREREQ(2, 35)
// libgcc's unwinder (since 2.35): the object that holds an address, and its unwind table.
int _dl_find_object(void* address, dl_find_object* result) noexcept {
  struct Search {
    uintptr_t address;
    dl_find_object* result;
  } search{reinterpret_cast<uintptr_t>(address), result};
  auto look = [](dl_phdr_info* info, size_t, void* data) {
    const auto& wanted = *static_cast<const Search*>(data);
    dl_find_object found{};
    for (int i = 0; i < info->dlpi_phnum; ++i) {
      const ElfW(Phdr)& segment = info->dlpi_phdr[i];
      const uintptr_t start = info->dlpi_addr + segment.p_vaddr;
      if (segment.p_type == PT_GNU_EH_FRAME) found.dlfo_eh_frame = reinterpret_cast<void*>(start);
      if (segment.p_type != PT_LOAD || wanted.address - start >= segment.p_memsz) continue;
      found.dlfo_map_start = reinterpret_cast<void*>(start);
      found.dlfo_map_end = reinterpret_cast<void*>(start + segment.p_memsz);
    }
    if (found.dlfo_map_start == nullptr || found.dlfo_eh_frame == nullptr) return 0;
    *wanted.result = found;
    return 1;
  };
  return dl_iterate_phdr(look, &search) == 1 ? 0 : -1;
}
#endif
}
