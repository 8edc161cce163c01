// Drives one fuzz target (LLVMFuzzerTestOneInput) without a coverage-guided fuzzer: seeds from a
// folder, then mutations of them by a seeded generator, so that a run can be repeated exactly. A
// target reports a fault by crashing; the input it was given is then in `last-input` in the working
// folder. Usage: TARGET SEED_FOLDER ITERATIONS [RANDOM_SEED]

#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace {

using Bytes = std::vector<std::uint8_t>;

constexpr std::size_t kLargestInput = 64 * 1024;

class Mutator {
 public:
  Mutator(std::vector<Bytes> seeds, std::uint64_t random_seed)
      : seeds_(std::move(seeds)), random_(random_seed) {}

  Bytes next() {
    Bytes input = seeds_[below(seeds_.size())];
    for (std::size_t left = 1 + below(6); left > 0; --left) mutate(&input);
    return input;
  }

 private:
  std::size_t below(std::size_t bound) {
    return bound == 0 ? 0 : static_cast<std::size_t>(random_() % bound);
  }

  void mutate(Bytes* input) {
    const std::size_t at = below(input->size() + 1);
    const auto here = input->begin() + static_cast<std::ptrdiff_t>(at);
    switch (below(7)) {
      case 0:  // flip a bit
        if (at < input->size()) (*input)[at] ^= static_cast<std::uint8_t>(1u << below(8));
        break;
      case 1:  // an interesting byte
        if (at < input->size()) (*input)[at] = kInteresting[below(std::size(kInteresting))];
        break;
      case 2:  // cut the end off
        input->resize(at);
        break;
      case 3: {  // take a stretch out
        const std::size_t count = below(std::min<std::size_t>(input->size() - at, 64) + 1);
        input->erase(here, here + static_cast<std::ptrdiff_t>(count));
        break;
      }
      case 4: {  // repeat a stretch
        const std::size_t count = below(std::min<std::size_t>(input->size() - at, 256) + 1);
        const Bytes copy(here, here + static_cast<std::ptrdiff_t>(count));
        if (input->size() < kLargestInput) input->insert(here, copy.begin(), copy.end());
        break;
      }
      case 5: {  // splice with another seed
        const Bytes& other = seeds_[below(seeds_.size())];
        const std::size_t from = below(other.size() + 1);
        input->resize(at);
        input->insert(input->end(), other.begin() + static_cast<std::ptrdiff_t>(from), other.end());
        if (input->size() > kLargestInput) input->resize(kLargestInput);
        break;
      }
      default: {  // a 32-bit number that sizes and counts trip over
        const std::uint32_t value = kNumbers[below(std::size(kNumbers))];
        for (std::size_t i = 0; i < 4 && at + i < input->size(); ++i) {
          (*input)[at + i] = static_cast<std::uint8_t>(value >> (8 * i));
        }
      }
    }
  }

  static constexpr std::uint8_t kInteresting[] = {0,   1,   0x7f, 0x80, 0xff, '\n', ' ',
                                                  '{', '}', '"',  '.',  ';',  '0',  '9'};
  static constexpr std::uint32_t kNumbers[] = {0,          1,          0x7fffffff, 0x80000000,
                                               0xffffffff, 0xfffffff0, 4096,       65536};

  std::vector<Bytes> seeds_;
  std::mt19937_64 random_;
};

std::vector<Bytes> read_seeds(const std::filesystem::path& folder) {
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.is_regular_file()) files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  std::vector<Bytes> seeds;
  for (const auto& file : files) {
    std::ifstream stream(file, std::ios::binary);
    seeds.emplace_back(std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>());
  }
  return seeds;
}

/// What the child tries; the parent still has it when the child has crashed.
struct Tried {
  std::streamsize size = 0;
  char bytes[2 * kLargestInput];

  void run(const Bytes& input) {
    size = static_cast<std::streamsize>(std::min(input.size(), sizeof bytes));
    std::copy_n(input.begin(), size, bytes);
    LLVMFuzzerTestOneInput(input.data(), input.size());
  }
};

Tried* share_tried() {
  void* const memory =
      mmap(nullptr, sizeof(Tried), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) std::abort();
  return new (memory) Tried;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) {
    std::fprintf(stderr, "usage: %s SEED_FOLDER ITERATIONS [RANDOM_SEED]\n", argv[0]);
    return 2;
  }
  std::vector<Bytes> seeds = read_seeds(argv[1]);
  const long iterations = std::atol(argv[2]);
  if (seeds.empty() || iterations <= 0) {
    std::fprintf(stderr, "%s: no seeds in %s, or no iterations\n", argv[0], argv[1]);
    return 2;
  }
  Tried* const tried = share_tried();
  const pid_t child = fork();
  if (child == 0) {
    for (const Bytes& seed : seeds) tried->run(seed);
    Mutator mutator(seeds, argc > 3 ? std::strtoull(argv[3], nullptr, 10) : 1);
    for (long i = 0; i < iterations; ++i) tried->run(mutator.next());
    std::printf("%ld inputs from %zu seeds\n", iterations, seeds.size());
    return 0;
  }
  int status = 0;
  if (child < 0 || waitpid(child, &status, 0) != child) return 2;
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return 0;
  std::ofstream("last-input", std::ios::binary).write(tried->bytes, tried->size);
  std::fprintf(stderr, "%s: ended with status %#x; its input is in last-input\n", argv[0],
               static_cast<unsigned>(status));
  return 1;
}
