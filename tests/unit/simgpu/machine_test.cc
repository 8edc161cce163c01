#include "tools/simgpu/driver/machine.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <sys/resource.h>

#include <algorithm>
#include <cstring>

#include "tests/unit/simgpu/machine_fixture.h"

namespace plexrl::simgpu {
namespace {

using testing::HasSubstr;
constexpr std::uint64_t kMiB = 1ull << 20;

/// In a child: joins, takes `bytes`, and keeps them until the child ends.
bool take_and_keep(const Spec& spec, std::uint64_t bytes, std::uint32_t* id) {
  std::string error;
  Machine* const machine = Machine::open(spec, &error).release();
  return machine != nullptr && machine->allocate(0, bytes, id);
}

TEST_F(MachineTest, AllMemoryIsFreeAtFirstAndComesBack) {
  const auto machine = open();
  EXPECT_EQ(machine->total_bytes(0), 64 * kMiB);
  EXPECT_EQ(machine->free_bytes(0), 64 * kMiB);
  std::uint32_t id = 0;
  ASSERT_TRUE(machine->allocate(0, 3 * kMiB, &id));
  EXPECT_EQ(machine->bytes_of(id), 4 * kMiB) << "whole frames of 2 MiB";
  EXPECT_EQ(machine->frames(id).size(), 2u);
  EXPECT_EQ(machine->free_bytes(0), 60 * kMiB);
  machine->release(id);
  EXPECT_EQ(machine->free_bytes(0), 64 * kMiB);
}

TEST_F(MachineTest, MoreThanThereIsIsRefusedAndTakesNothing) {
  const auto machine = open();
  std::uint32_t id = 0;
  EXPECT_FALSE(machine->allocate(0, 66 * kMiB, &id));
  EXPECT_EQ(machine->free_bytes(0), 64 * kMiB);
  EXPECT_TRUE(machine->allocate(0, 64 * kMiB, &id));
  EXPECT_FALSE(machine->allocate(0, 1, &id));
}

TEST_F(MachineTest, MemoryIsHeldUntilEachHoldIsReleased) {
  const auto machine = open();
  std::uint32_t id = 0;
  ASSERT_TRUE(machine->allocate(0, 2 * kMiB, &id));
  machine->hold(id);
  machine->release(id);
  EXPECT_EQ(machine->free_bytes(0), 62 * kMiB);
  machine->release(id);
  EXPECT_EQ(machine->free_bytes(0), 64 * kMiB);
}

TEST_F(MachineTest, FreshMemoryIsZeroWhateverItsLastHolderWrote) {
  const auto machine = open();
  std::uint32_t id = 0;
  ASSERT_TRUE(machine->allocate(0, 64 * kMiB, &id));
  for (std::byte* frame : machine->frames(id)) std::memset(frame, 0x5a, kFrameBytes);
  machine->release(id);
  ASSERT_TRUE(machine->allocate(0, 64 * kMiB, &id));
  for (const std::byte* frame : machine->frames(id)) {
    EXPECT_TRUE(
        std::all_of(frame, frame + kFrameBytes, [](std::byte b) { return b == std::byte{}; }));
  }
}

TEST_F(MachineTest, DevicesHaveMemoryAndNamesOfTheirOwn) {
  spec_.gpus = 2;
  const auto machine = open();
  std::uint32_t id = 0;
  ASSERT_TRUE(machine->allocate(1, 10 * kMiB, &id));
  EXPECT_EQ(machine->device_of(id), 1);
  EXPECT_EQ(machine->free_bytes(0), 64 * kMiB);
  EXPECT_EQ(machine->free_bytes(1), 54 * kMiB);
  EXPECT_NE(machine->uuid(0), machine->uuid(1));
  EXPECT_EQ(uuid_text(machine->uuid(1)).size(), 40u);
  EXPECT_EQ(machine->uuid(1), device_uuid(name_, 1));
}

TEST_F(MachineTest, ProcessesShareOneMemory) {
  const auto machine = open();
  Child child([&] {
    std::uint32_t id = 0;
    return take_and_keep(spec_, 40 * kMiB, &id);
  });
  ASSERT_TRUE(child.succeeded());
  EXPECT_EQ(machine->free_bytes(0), 24 * kMiB);
  std::uint32_t id = 0;
  EXPECT_FALSE(machine->allocate(0, 26 * kMiB, &id));
  const auto usage = machine->usage(0);
  ASSERT_EQ(usage.size(), 1u);
  EXPECT_EQ(usage[0].pid, child.pid());
  EXPECT_EQ(usage[0].bytes, 40 * kMiB);
}

TEST_F(MachineTest, AKilledHoldersMemoryIsTheNextComers) {
  const auto machine = open();
  Child child([&] {
    std::uint32_t id = 0;
    return take_and_keep(spec_, 60 * kMiB, &id);
  });
  ASSERT_TRUE(child.succeeded());
  std::uint32_t id = 0;
  EXPECT_FALSE(machine->allocate(0, 50 * kMiB, &id));
  child.kill_now();
  EXPECT_TRUE(machine->allocate(0, 50 * kMiB, &id));
  EXPECT_EQ(machine->usage(0).size(), 1u);
}

TEST_F(MachineTest, AKilledHoldersMemoryStaysTakenForTheDelay) {
  spec_.free_delay_ns = 3'600'000'000'000;  // longer than any test
  const auto machine = open();
  Child child([&] {
    std::uint32_t id = 0;
    return take_and_keep(spec_, 60 * kMiB, &id);
  });
  ASSERT_TRUE(child.succeeded());
  child.kill_now();
  EXPECT_EQ(machine->free_bytes(0), 4 * kMiB);
}

TEST_F(MachineTest, AMachineWhoseProcessesWereAllKilledIsMadeAnew) {
  {
    Child child([&] {
      std::uint32_t id = 0;
      return take_and_keep(spec_, 60 * kMiB, &id);
    });
    ASSERT_TRUE(child.succeeded());
  }
  spec_.memory_bytes = 128 * kMiB;  // nobody is left to disagree with
  const auto machine = open();
  ASSERT_NE(machine, nullptr);
  EXPECT_EQ(machine->free_bytes(0), 128 * kMiB);
}

TEST_F(MachineTest, MakingAnyMachineRemovesWhatTheKilledLeft) {
  const auto leave_by_kill = [&] {
    Child child([&] {
      std::uint32_t id = 0;
      return take_and_keep(spec_, 2 * kMiB, &id);
    });
    EXPECT_TRUE(child.succeeded());
  };
  spec_.free_delay_ns = 3'600'000'000'000;  // the dead count as its users meanwhile
  leave_by_kill();
  EXPECT_TRUE(has_memory());
  Spec other = spec_;
  other.name = name_ + "-other";
  EXPECT_NE(open(other), nullptr);
  EXPECT_FALSE(has_memory());
  const auto again = open();
  ASSERT_NE(again, nullptr) << "the name can be had again";
  EXPECT_EQ(again->free_bytes(0), 62 * kMiB) << "what the dead had is still taken";
  std::uint32_t id = 0;
  ASSERT_TRUE(again->allocate(0, 2 * kMiB, &id));
  again->frames(id).at(0)[5] = std::byte{7};
}

TEST_F(MachineTest, MakingAMachineLeavesTheMemoryOfTheLiving) {
  const auto machine = open();
  Spec other = spec_;
  other.name = name_ + "-other";
  EXPECT_NE(open(other), nullptr);
  EXPECT_TRUE(has_memory());
  EXPECT_NE(open(), nullptr) << "others can still join";
}

TEST_F(MachineTest, TheLastProcessRemovesEveryFile) {
  auto machine = open();
  std::uint32_t id = 0;
  ASSERT_TRUE(machine->allocate(0, kMiB, &id));
  const int descriptor = machine->export_descriptor(id);
  ASSERT_GE(descriptor, 0);
  machine.reset();
  EXPECT_FALSE(std::filesystem::exists(state_folder(spec_)));
  EXPECT_FALSE(has_memory());
  close(descriptor);
}

TEST_F(MachineTest, OtherFiguresForTheSameNameAreAnErrorThatShowsBoth) {
  const auto machine = open();
  spec_.memory_bytes = 128 * kMiB;
  std::string error;
  EXPECT_EQ(Machine::open(spec_, &error), nullptr);
  EXPECT_THAT(error, HasSubstr(name_));
  EXPECT_THAT(error, HasSubstr("memory=" + std::to_string(64 * kMiB)));
  EXPECT_THAT(error, HasSubstr("memory=" + std::to_string(128 * kMiB)));
}

TEST_F(MachineTest, AProcesssOwnSettingsNeedNotAgree) {
  const auto machine = open();
  spec_.fixed_order = true;
  spec_.hang_kernel = 7;
  std::string error;
  EXPECT_NE(Machine::open(spec_, &error), nullptr) << error;
}

TEST_F(MachineTest, AnExportedDescriptorKeepsTheMemoryUntilItIsClosed) {
  const auto machine = open();
  std::uint32_t id = 0;
  ASSERT_TRUE(machine->allocate(0, 60 * kMiB, &id));
  const int descriptor = machine->export_descriptor(id);
  ASSERT_GE(descriptor, 0);
  machine->release(id);
  std::uint32_t other = 0;
  EXPECT_FALSE(machine->allocate(0, 60 * kMiB, &other)) << "the descriptor still stands for it";
  close(descriptor);
  EXPECT_TRUE(machine->allocate(0, 60 * kMiB, &other));
}

TEST_F(MachineTest, AnImportSeesTheExportersBytesAndOutlivesIt) {
  const auto machine = open();
  int pipe_ends[2];
  ASSERT_EQ(pipe(pipe_ends), 0);
  // The child exports; the descriptor reaches us through /proc, as SCM_RIGHTS would bring it.
  Child child([&] {
    std::string error;
    Machine* const mine = Machine::open(spec_, &error).release();
    std::uint32_t id = 0;
    if (mine == nullptr || !mine->allocate(0, 4 * kMiB, &id)) return false;
    std::memcpy(mine->frames(id)[1], "exported", 9);
    const int descriptor = mine->export_descriptor(id);
    return descriptor >= 0 &&
           write(pipe_ends[1], &descriptor, sizeof descriptor) == sizeof descriptor;
  });
  ASSERT_TRUE(child.succeeded());
  int theirs = -1;
  ASSERT_EQ(read(pipe_ends[0], &theirs, sizeof theirs), static_cast<ssize_t>(sizeof theirs));
  const std::string path = "/proc/" + std::to_string(child.pid()) + "/fd/" + std::to_string(theirs);
  const int descriptor = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
  ASSERT_GE(descriptor, 0);
  std::uint32_t id = 0;
  ASSERT_TRUE(machine->import_descriptor(descriptor, &id));
  close(descriptor);
  child.kill_now();
  EXPECT_STREQ(reinterpret_cast<const char*>(machine->frames(id)[1]), "exported");
  EXPECT_EQ(machine->free_bytes(0), 60 * kMiB);
  machine->release(id);
  EXPECT_EQ(machine->free_bytes(0), 64 * kMiB);
  close(pipe_ends[0]);
  close(pipe_ends[1]);
}

TEST_F(MachineTest, AForeignDescriptorIsNoHandle) {
  const auto machine = open();
  const int null = ::open("/dev/null", O_RDWR | O_CLOEXEC);
  std::uint32_t id = 77;
  EXPECT_FALSE(machine->import_descriptor(null, &id));
  EXPECT_FALSE(machine->import_descriptor(-1, &id));
  EXPECT_EQ(id, 77u);
  close(null);
}

TEST_F(MachineTest, AHandleThatOutlivedItsMemoryIsRefused) {
  const auto machine = open();
  std::uint32_t id = 0;
  ASSERT_TRUE(machine->allocate(0, kMiB, &id));
  const std::uint64_t tag = machine->tag_of(id);
  EXPECT_TRUE(machine->import_id(id, tag));
  machine->release(id);
  machine->release(id);
  std::uint32_t again = 0;
  ASSERT_TRUE(machine->allocate(0, kMiB, &again));
  ASSERT_EQ(again, id) << "ids are used again, so the tag must tell";
  EXPECT_FALSE(machine->import_id(id, tag));
}

TEST_F(MachineTest, TransfersOfOneDirectionFollowEachOther) {
  spec_.link_bytes_per_s = 1'000'000'000;
  const auto machine = open();
  const std::uint64_t at = 5'000'000'000;
  EXPECT_EQ(machine->book_transfer(0, Direction::kToDevice, 1'000'000, at), at + 1'000'000);
  EXPECT_EQ(machine->book_transfer(0, Direction::kToDevice, 1'000'000, at), at + 2'000'000);
  EXPECT_EQ(machine->book_transfer(0, Direction::kToDevice, 500'000, at + 9'000'000),
            at + 9'500'000)
      << "an idle link begins at once";
}

TEST_F(MachineTest, BothDirectionsAtOnceKeepTheDuplexShare) {
  spec_.link_bytes_per_s = 1'000'000'000;
  spec_.duplex = 0.5;
  const auto machine = open();
  const std::uint64_t at = 5'000'000'000;
  ASSERT_EQ(machine->book_transfer(0, Direction::kToDevice, 10'000'000, at), at + 10'000'000);
  // 10 ms beside the other direction move half of it; the rest has the link alone.
  EXPECT_EQ(machine->book_transfer(0, Direction::kToHost, 10'000'000, at), at + 15'000'000);
}

TEST_F(MachineTest, ALinkOfRateZeroCostsNothing) {
  spec_.link_bytes_per_s = 0;
  const auto machine = open();
  EXPECT_EQ(machine->book_transfer(0, Direction::kToHost, 1ull << 40, 123), 123u);
}

TEST_F(MachineTest, AnObserverSeesFiguresAndKeepsNothingAlive) {
  EXPECT_EQ(observe(), nullptr) << "nobody has the machine";
  auto machine = open();
  std::uint32_t id = 0;
  ASSERT_TRUE(machine->allocate(0, 10 * kMiB, &id));
  machine->counters(0).kernels.fetch_add(3);
  const auto seen = observe();
  ASSERT_NE(seen, nullptr);
  EXPECT_EQ(seen->spec().device_part(), spec_.device_part());
  EXPECT_EQ(seen->free_bytes(0), 54 * kMiB);
  EXPECT_EQ(seen->counters(0).kernels.load(), 3u);
  EXPECT_FALSE(seen->is_gone());
  machine.reset();
  EXPECT_TRUE(seen->is_gone());
  EXPECT_FALSE(std::filesystem::exists(state_folder(spec_)));
}

TEST_F(MachineTest, WithoutDescriptorsTheErrorSaysWhatCantBeOpened) {
  const auto machine = open();
  Child poor([&] {
    const int lowest = dup(0);
    close(lowest);
    rlimit limit{};
    getrlimit(RLIMIT_NOFILE, &limit);
    std::string error;
    int refused = 0;
    for (limit.rlim_cur = static_cast<rlim_t>(lowest);; ++limit.rlim_cur, ++refused) {
      setrlimit(RLIMIT_NOFILE, &limit);
      if (Machine::observe(name_, &error) != nullptr) return refused > 1;
      if (error.find("Too many open files") == std::string::npos) return false;
    }
  });
  EXPECT_TRUE(poor.succeeded());
}

TEST_F(MachineTest, AnObserverFindsDeathsToo) {
  spec_.free_delay_ns = 0;
  const auto machine = open();
  Child child([&] {
    std::uint32_t id = 0;
    return take_and_keep(spec_, 60 * kMiB, &id);
  });
  const auto seen = observe();
  ASSERT_NE(seen, nullptr);
  EXPECT_EQ(seen->free_bytes(0), 4 * kMiB);
  child.kill_now();
  EXPECT_EQ(seen->free_bytes(0), 64 * kMiB);
}

}  // namespace
}  // namespace plexrl::simgpu
