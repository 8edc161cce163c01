// Keeps device memory whose every word is different, checks it and writes it anew round after
// round, until it and all its neighbours have done more rounds, since all of them began, than the
// test wants: so none of them ends before each has had the GPU again. `takes_turns INDEX COUNT FILE
// BYTES`: FILE has a word for each, then the number of rounds.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>

#include "tests/integration/programs/program.h"

using namespace plexrl::integration;

namespace {

constexpr std::size_t kPieceWords = std::size_t{1} << 18;

std::vector<std::uint32_t> piece_of(std::size_t index, std::uint64_t round, std::size_t piece) {
  std::vector<std::uint32_t> words(kPieceWords);
  const std::uint32_t first =
      hash32(static_cast<std::uint32_t>((index * 1000003 + round) * 1000003 + piece));
  for (std::size_t i = 0; i < kPieceWords; ++i)
    words[i] = hash32(first + static_cast<std::uint32_t>(i));
  return words;
}

void write_all(CUdeviceptr start, std::size_t pieces, std::size_t index, std::uint64_t round) {
  for (std::size_t piece = 0; piece < pieces; ++piece) {
    const auto words = piece_of(index, round, piece);
    CHECK(cuMemcpyHtoD(start + piece * kPieceWords * 4, words.data(), kPieceWords * 4));
  }
}

void check_all(CUdeviceptr start, std::size_t pieces, std::size_t index, std::uint64_t round) {
  std::vector<std::uint32_t> found(kPieceWords);
  for (std::size_t piece = 0; piece < pieces; ++piece) {
    CHECK(cuMemcpyDtoH(found.data(), start + piece * kPieceWords * 4, kPieceWords * 4));
    if (found == piece_of(index, round, piece)) continue;
    std::printf("WRONG: round %llu, piece %zu\n", static_cast<unsigned long long>(round), piece);
    std::exit(1);
  }
}

std::atomic<std::uint64_t>* map_rounds(const char* file) {
  const int fd = open(file, O_RDWR);
  void* const page = mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (fd < 0 || page == MAP_FAILED) std::exit(1);
  close(fd);
  return static_cast<std::atomic<std::uint64_t>*>(page);
}

std::uint64_t fewest(const std::atomic<std::uint64_t>* rounds, std::size_t count) {
  std::uint64_t least = rounds[0].load();
  for (std::size_t i = 1; i < count; ++i) least = std::min(least, rounds[i].load());
  return least;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 5) return 2;
  setenv("PLEXRL_TEST_BALLAST", "65536", 1);
  const std::size_t index = std::strtoul(argv[1], nullptr, 10);
  const std::size_t count = std::strtoul(argv[2], nullptr, 10);
  std::atomic<std::uint64_t>* const rounds = map_rounds(argv[3]);
  const std::size_t pieces = std::strtoul(argv[4], nullptr, 10) / (kPieceWords * 4);
  Program program;
  CUdeviceptr start = 0;
  CHECK(cuMemAlloc(&start, pieces * kPieceWords * 4));
  std::uint64_t round = 0;
  // The first round of each only says that it is there.
  while (fewest(rounds, count) <= rounds[count].load()) {
    if (round != 0) check_all(start, pieces, index, round);
    write_all(start, pieces, index, ++round);
    if (rounds[index].load() == 0 || fewest(rounds, count) != 0) ++rounds[index];
  }
  check_all(start, pieces, index, round);
  std::printf("all rounds were right\n");
  CHECK(cuMemFree(start));
}
