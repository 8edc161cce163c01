// Takes all the device memory that it is told is free, and rewrites it round after round, having
// checked that what it wrote in the round before is still there: until it and its neighbour have
// both done a few rounds since both began. `takes_all_free INDEX FILE`: FILE has a word for each.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>

#include "tests/integration/programs/program.h"

using namespace plexrl::integration;

namespace {

constexpr std::size_t kPage = 2 << 20, kPiece = 1 << 20, kPieceWords = kPiece / 4;
constexpr std::uint64_t kRounds = 4;

struct Block {
  CUdeviceptr start;
  std::size_t bytes;
};

std::size_t free_bytes() {
  std::size_t free = 0, total = 0;
  CHECK(cuMemGetInfo(&free, &total));
  return free;
}

/// Half of it, and then all that is left: what is told as free can be had.
std::vector<Block> take_all() {
  std::vector<Block> blocks;
  for (std::size_t bytes = free_bytes() / 2 / kPage * kPage; bytes != 0; bytes = free_bytes()) {
    blocks.push_back({allocate(bytes), bytes});
  }
  return blocks;
}

std::uint32_t value_of(std::uint64_t round, std::size_t piece) {
  return hash32(static_cast<std::uint32_t>(round * 1000003 + piece));
}

void write_all(const std::vector<Block>& blocks, std::uint64_t round) {
  std::size_t piece = 0;
  for (const Block& block : blocks) {
    for (std::size_t at = 0; at < block.bytes; at += kPiece) {
      CHECK(cuMemsetD32Async(block.start + at, value_of(round, piece++), kPieceWords, nullptr));
    }
  }
  CHECK(cuStreamSynchronize(nullptr));
}

void check_all(const std::vector<Block>& blocks, std::uint64_t round) {
  std::vector<std::uint32_t> words(kPieceWords);
  std::size_t piece = 0;
  for (const Block& block : blocks) {
    for (std::size_t at = 0; at < block.bytes; at += kPiece) {
      CHECK(cuMemcpyDtoH(words.data(), block.start + at, kPiece));
      const std::uint32_t wanted = value_of(round, piece++);
      for (const std::uint32_t word : words) {
        if (word == wanted) continue;
        std::printf("WRONG: round %llu, piece %zu has %08x, not %08x\n",
                    static_cast<unsigned long long>(round), piece - 1, word, wanted);
        std::exit(1);
      }
    }
  }
}

std::atomic<std::uint64_t>* map_rounds(const char* file) {
  const int fd = open(file, O_RDWR);
  void* const page = mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (fd < 0 || page == MAP_FAILED) std::exit(1);
  close(fd);
  return static_cast<std::atomic<std::uint64_t>*>(page);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  setenv("PLEXRL_TEST_BALLAST", "65536", 1);
  const std::size_t index = std::strtoul(argv[1], nullptr, 10);
  std::atomic<std::uint64_t>* const rounds = map_rounds(argv[2]);
  Program program;
  const std::vector<Block> blocks = take_all();
  std::size_t taken = 0;
  for (const Block& block : blocks) taken += block.bytes;
  std::uint64_t round = 0;
  std::uint64_t both_since = 0;
  // What the neighbour has done before this one began does not count.
  std::uint64_t theirs_before = 0;
  do {
    if (round != 0) check_all(blocks, round);
    write_all(blocks, ++round);
    rounds[index].store(round);
    if (both_since == 0 && rounds[1 - index].load() != 0) {
      both_since = round;
      theirs_before = rounds[1 - index].load();
    }
  } while (both_since == 0 || round < both_since + kRounds ||
           (rounds[1 - index].load() < theirs_before + kRounds && rounds[3 - index].load() == 0));
  check_all(blocks, round);
  rounds[2 + index].store(1);  // the neighbour need not wait for more of our rounds
  std::printf("took %zu bytes in %zu blocks\n", taken, blocks.size());
  for (const Block& block : blocks) CHECK(cuMemFree(block.start));
}
