// Prints the median round trip of two processes that sleep on a futex in turn, in ns: what a
// wake-up costs here. Usage: futex_round_trip ROUNDS

#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <vector>

namespace {

void wait_while(std::atomic<std::uint32_t>* word, std::uint32_t value) {
  while (word->load(std::memory_order_acquire) == value) {
    syscall(SYS_futex, word, FUTEX_WAIT, value, nullptr, nullptr, 0);
  }
}

void set_and_wake(std::atomic<std::uint32_t>* word, std::uint32_t value) {
  word->store(value, std::memory_order_release);
  syscall(SYS_futex, word, FUTEX_WAKE, 1, nullptr, nullptr, 0);
}

}  // namespace

int main(int argc, char** argv) {
  const int rounds = argc > 1 ? std::atoi(argv[1]) : 2000;
  if (rounds <= 0) {
    std::fprintf(stderr, "futex_round_trip: ROUNDS must be a positive number, got '%s'\n", argv[1]);
    return 2;
  }
  void* page = mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (page == MAP_FAILED) return 1;
  auto* word = new (page) std::atomic<std::uint32_t>(0);
  const pid_t child = fork();
  if (child < 0) return 1;
  if (child == 0) {
    for (int i = 0; i < rounds; ++i) {
      wait_while(word, 0);
      set_and_wake(word, 0);
    }
    _exit(0);
  }
  std::vector<std::int64_t> took;
  for (int i = 0; i < rounds; ++i) {
    const auto start = std::chrono::steady_clock::now();
    set_and_wake(word, 1);
    wait_while(word, 1);
    took.push_back((std::chrono::steady_clock::now() - start).count());
  }
  waitpid(child, nullptr, 0);
  std::nth_element(took.begin(), took.begin() + rounds / 2, took.end());
  std::printf("%lld\n", static_cast<long long>(took[static_cast<std::size_t>(rounds / 2)]));
  return 0;
}
