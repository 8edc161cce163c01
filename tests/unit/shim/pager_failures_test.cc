// Every step of every chunk fails once, in its turn: reserving, creating, mapping, giving access,
// copying, hashing, unmapping, host memory, disk. No byte is lost, nothing is left behind, and no
// memory is taken from under work that has not ended.

#include <memory>
#include <set>

#include "tests/unit/shim/fake_disk.h"
#include "tests/unit/shim/pager_fixture.h"

namespace plexrl::shim::testing {
namespace {

constexpr std::uint64_t kAll = ~std::uint64_t{0};
constexpr std::size_t kChunk = std::size_t{64} << 10;

/// What happens to a process's memory, from its first byte to its last, with a driver that does
/// everything as late as it may.
class Story {
 public:
  explicit Story(std::size_t host_bytes) : store_(&slabs_), spill_(&disk_) {
    driver_.be_late();
    table_.set_geometry(kChunk, kChunk);
    store_.set_slab_bytes(2 * kChunk);
    spill_.set_piece_bytes(kChunk / 2);
    slabs_.left = host_bytes;
    pager_.set_hashing(Pager::Hashing::kAlways);
    context_ = driver_.make_context();
    driver_.set_current(context_);
    contexts_.add(context_, 0);
  }

  void tell() {
    table_.set_export(allocate(kChunk).start, 7);  // first: it goes to no disk
    Memory& plain = allocate(5 * kChunk);
    Memory& aliased = allocate(2 * kChunk);
    const std::uint64_t alias = add_alias(aliased);
    run([&] {
      for (const auto& [start, memory] : memories_) write(*memory, 0, memory->expected.size());
      const auto word = std::byte{0x5a};
      std::fill(&plain.expected[kChunk], &plain.expected[2 * kChunk], word);
      EXPECT_TRUE(driver_.write(plain.start, plain.expected));
      write(aliased, kChunk / 2, kChunk, alias);
    });
    for (int i = 0; i < 5 && table_.totals(0).resident != 0; ++i) pager_.evict(0, kAll);
    EXPECT_EQ(table_.totals(0).resident, 0u) << "however full the host is";
    run([&] {
      write(plain, 0, 16);
      write(plain, 3 * kChunk, kChunk);
    });
    pager_.evict(0, 3 * kChunk);
    Pager::LoadFigures figures;
    while (pager_.prefetch_step(0, kAll, &figures) == Pager::Progress::kMore) {
    }
    pager_.evict(0, kAll);
    pager_.give_back_host(2 * kChunk);
    Memory* grown = nullptr;
    run([&] {
      grown = &allocate(kChunk);
      while (!pager_.back_now(grown->range)) {
      }
      write(*grown, 0, kChunk);
      write(aliased, kChunk, 64, alias);
    });
    pager_.evict(0, kAll);
    for (int i = 0; i < 2; ++i) pager_.load_step(0, &figures);
    pager_.finish_loads(&figures);
    free(*grown);
    run([] {});
    remove_alias(aliased, alias);
    pager_.evict(0, 2 * kChunk);
    run([] {});
    while (!memories_.empty()) free(*memories_.begin()->second);
    expect_nothing_left();
  }

  FakeDriver driver_{16 * kChunk};
  FakeSlabs slabs_;
  FakeDisk disk_;
  std::size_t most_lost_ = 0;        ///< bytes
  std::size_t most_registered_ = 0;  ///< slabs whose registration ends with the context only

 private:
  struct Memory {
    std::uint64_t start;
    Range* range;
    std::vector<std::byte> expected;
    bool is_known = false;
  };

  Memory& allocate(std::size_t bytes) {
    Range* range = nullptr;
    while (table_.reserve(0, context_, bytes, false, &range) != CUDA_SUCCESS) {
    }
    auto memory = std::make_unique<Memory>(Memory{range->start, range, {}});
    memory->expected.resize(bytes);
    return *(memories_[range->start] = std::move(memory));
  }
  void free(const Memory& memory) {
    std::size_t freed = 0;
    auto range = table_.remove(memory.start, &freed);
    EXPECT_NE(range, nullptr);
    pager_.release(std::move(range));
    memories_.erase(memory.start);
  }
  std::uint64_t add_alias(const Memory& memory) {
    CUdeviceptr alias = 0;
    while (driver.cuMemAddressReserve(&alias, memory.expected.size(), 0, 0, 0) != CUDA_SUCCESS) {
    }
    while (pager_.add_alias(memory.start, alias) != CUDA_SUCCESS) {
    }
    const std::vector<CUmemAccessDesc> access = {
        {{CU_MEM_LOCATION_TYPE_DEVICE, {0}}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE}};
    while (pager_.set_alias_access(memory.start, alias, access) != CUDA_SUCCESS) {
    }
    return alias;
  }
  void remove_alias(const Memory& memory, std::uint64_t alias) {
    while (pager_.remove_alias(memory.start, alias) != CUDA_SUCCESS) {
    }
  }

  /// The process gets its memory, sees what it holds, and works.
  template <typename Work>
  void run(Work work) {
    Pager::LoadFigures figures;
    for (int i = 0; i < 100 && pager_.load_step(0, &figures) != Pager::Progress::kDone; ++i) {
    }
    ASSERT_TRUE(table_.when_complete([&] { table_.note_gate_open(); }));
    for (const auto& [start, memory] : memories_) expect_bytes(*memory);
    work();
  }
  void expect_bytes(Memory& memory) {
    if (!memory.is_known) return;
    std::vector<std::byte> found(kChunk);
    for (const Chunk& chunk : memory.range->chunks) {
      std::byte* const expected = &memory.expected[chunk.offset];
      if (chunk.state == ChunkState::kLost) {
        EXPECT_FALSE(driver_.read(memory.start + chunk.offset, &found)) << "never other bytes";
        continue;
      }
      ASSERT_TRUE(driver_.read(memory.start + chunk.offset, &found));
      ASSERT_EQ(std::memcmp(found.data(), expected, kChunk), 0) << "chunk at " << chunk.offset;
    }
    EXPECT_LE(table_.totals(0).lost, most_lost_);
  }
  void write(Memory& memory, std::size_t at, std::size_t count, std::uint64_t through = 0) {
    memory.is_known = memory.is_known || count == memory.expected.size();
    if (through == 0) through = memory.start;
    // Other bytes each time, and quickly made.
    static const std::vector<std::byte> kNoise = noise();
    written_ += 8;
    std::byte* const to = &memory.expected[at];
    std::memcpy(to, &kNoise[written_], count);
    const bool has_written = driver_.write(through + at, {to, to + count});
    EXPECT_TRUE(has_written || table_.totals(0).lost != 0);
  }

  static std::vector<std::byte> noise() {
    std::mt19937_64 random(1);
    std::vector<std::byte> bytes(6 * kChunk);
    for (std::size_t i = 0; i < bytes.size(); i += 8) {
      const std::uint64_t word = random();
      std::memcpy(&bytes[i], &word, sizeof word);
    }
    return bytes;
  }

  void expect_nothing_left() {
    EXPECT_EQ(driver_.used_bytes(), 0u);
    EXPECT_EQ(driver_.mapped_bytes(), 0u);
    EXPECT_EQ(table_.charged_bytes(0), 0u);
    EXPECT_EQ(store_.used_bytes(), 0u);
    for (int i = 0; i < 2; ++i) store_.give_back_free(kAll);  // one may have been refused
    EXPECT_EQ(store_.held_bytes(), 0u);
    pager_.leave_context(context_).unlock();
    EXPECT_LE(driver_.registered_ranges(), most_registered_);
    EXPECT_TRUE(driver_.own_memory.empty());
    EXPECT_TRUE(driver_.streams.empty());
    EXPECT_TRUE(driver_.events.empty());
    spill_.take(kChunk);  // pays what is owed to a manager that did not listen
    EXPECT_TRUE(disk_.is_empty());
    EXPECT_EQ(driver_.strayed(), 0) << "memory was taken from under work that was under way";
  }

  RangeTable table_{kChunk};
  HostStore store_;
  Contexts contexts_;
  SpillStore spill_;
  Pager pager_{table_, store_, contexts_, &spill_};
  CUcontext context_ = nullptr;
  std::map<std::uint64_t, std::unique_ptr<Memory>> memories_;
  std::size_t written_ = 0;
};

/// All memory of the story, and how much of it is host memory: enough, or the rest goes to disk.
constexpr std::size_t kHosts[] = {64 * kChunk, 4 * kChunk};

/// Calls that a driver does not refuse, and that nobody could do anything about.
const std::set<std::string> kNeverFail = {
    "cuMemRelease",  "cuEventDestroy_v2", "cuStreamDestroy_v2", "cuMemFree_v2",
    "cuMemFreeHost", "cuModuleUnload",    "cuCtxPopCurrent_v2"};

const char* const kCalls[] = {
    "cuMemAddressReserve",  "cuMemCreate",         "cuMemMap",
    "cuMemSetAccess",       "cuMemUnmap",          "cuMemcpyDtoHAsync_v2",
    "cuMemcpyHtoDAsync_v2", "cuMemsetD32Async",    "cuLaunchKernel",
    "cuEventCreate",        "cuEventRecord",       "cuEventSynchronize",
    "cuStreamCreate",       "cuStreamSynchronize", "cuMemHostRegister_v2",
    "cuMemHostUnregister",  "cuModuleLoadData",    "cuModuleGetFunction",
    "cuMemAlloc_v2",        "cuMemHostAlloc",      "cuMemHostGetDevicePointer_v2",
    "cuCtxPushCurrent_v2",  "cuDeviceGetAttribute"};

const char* const kDiskSteps[] = {"open_file",   "staging",    "manager_dies", "disk_full",
                                  "write_fails", "read_fails", "damaged",      "discard"};

class EachCallFails : public ::testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Pager, EachCallFails, ::testing::ValuesIn(kCalls),
                         [](const auto& info) { return std::string(info.param); });

TEST_P(EachCallFails, AndNothingIsLost) {
  for (const std::size_t host : kHosts) {
    int passages = 0;
    for (int nth = 1; nth == 1 || nth <= passages; ++nth) {
      Story story(host);
      const CUresult error = nth % 2 == 0 ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_ERROR_INVALID_VALUE;
      story.driver_.fail(GetParam(), nth, error);
      if (std::string(GetParam()) == "cuMemHostUnregister") story.most_registered_ = 1;
      story.tell();
      if (nth == 1) passages = story.driver_.calls(GetParam());
      ASSERT_FALSE(HasFailure()) << nth << " of " << passages << ", host " << host;
    }
    EXPECT_NE(passages, 0);
  }
}

class EachDiskStepFails : public ::testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Pager, EachDiskStepFails, ::testing::ValuesIn(kDiskSteps),
                         [](const auto& info) { return std::string(info.param); });

TEST_P(EachDiskStepFails, AndNothingElseIsLost) {
  int passages = 0;
  for (int nth = 1; nth == 1 || nth <= passages; ++nth) {
    Story story(kHosts[1]);
    story.disk_.fail(GetParam(), nth);
    if (std::string(GetParam()) == "damaged") story.most_lost_ = kChunk;
    story.tell();
    if (nth == 1) passages = story.disk_.passages(GetParam());
    ASSERT_FALSE(HasFailure()) << nth << " of " << passages;
  }
  EXPECT_NE(passages, 0);
}

TEST(Pager, EachSlabThatIsRefusedLosesNothing) {
  for (const std::size_t host : kHosts) {
    int passages = 0;
    for (int nth = 1; nth == 1 || nth <= passages; ++nth) {
      Story story(host);
      story.slabs_.refused = nth;
      story.tell();
      if (nth == 1) passages = story.slabs_.requests;
      ASSERT_FALSE(HasFailure()) << nth << " of " << passages << ", host " << host;
    }
    EXPECT_NE(passages, 0);
  }
}

TEST(Pager, NoCallOfTheStoryIsForgotten) {
  std::set<std::string> known = kNeverFail;
  known.insert(std::begin(kCalls), std::end(kCalls));
  for (const std::size_t host : kHosts) {
    Story story(host);
    story.tell();
    for (const std::string& name : story.driver_.called()) {
      EXPECT_EQ(known.count(name), 1u) << name;
    }
  }
}

}  // namespace
}  // namespace plexrl::shim::testing
