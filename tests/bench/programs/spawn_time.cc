// Prints the median time, in ns, from fork to the end of a program that does nothing, without and
// with a preload: two numbers, from pairs that alternate in one run. Usage: spawn_time PRELOAD
// ROUNDS

#include <spawn.h>
#include <sys/wait.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

namespace {

std::int64_t run_once(char* const* environment) {
  char program[] = "/bin/true";
  char* const arguments[] = {program, nullptr};
  const auto start = std::chrono::steady_clock::now();
  pid_t child = 0;
  if (posix_spawn(&child, program, nullptr, nullptr, arguments, environment) != 0) std::exit(1);
  int status = 0;
  waitpid(child, &status, 0);
  if (status != 0) std::exit(1);
  return (std::chrono::steady_clock::now() - start).count();
}

std::int64_t median(std::vector<std::int64_t> values) {
  std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2),
                   values.end());
  return values[values.size() / 2];
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3 || std::atoi(argv[2]) <= 0) {
    std::fprintf(stderr, "usage: spawn_time PRELOAD ROUNDS\n");
    return 2;
  }
  std::string preload = std::string("LD_PRELOAD=") + argv[1];
  char* const bare[] = {nullptr};
  char* const loaded[] = {preload.data(), nullptr};
  std::vector<std::int64_t> without;
  std::vector<std::int64_t> with;
  for (int i = 0; i < std::atoi(argv[2]); ++i) {
    without.push_back(run_once(bare));
    with.push_back(run_once(loaded));
  }
  std::printf("%lld %lld\n", static_cast<long long>(median(without)),
              static_cast<long long>(median(with)));
  return 0;
}
