// A machine's process that forks without exec: its child shares open files with it, and must not
// keep the tables locked or the memory taken.

#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/wait.h>

#include <thread>

#include "tests/unit/simgpu/machine_fixture.h"

namespace plexrl::simgpu {
namespace {

class MachineForkTest : public MachineTest {
 protected:
  /// Whether another open file could have the lock of the tables just now.
  bool is_lock_free() const {
    const int fd = ::open((state_folder(spec_) + "/lock").c_str(), O_RDWR | O_CLOEXEC);
    const bool is_free = flock(fd, LOCK_EX | LOCK_NB) == 0;
    close(fd);
    return is_free;
  }
  /// Makes a child that stays when this process is gone, until the test closes the pipe. Returns
  /// when it runs: before, fork has not ended in it, and it has all that its parent has.
  static bool leave_child(const int (&stay)[2]) {
    int there[2];
    char nothing = 0;
    if (pipe(there) != 0) return false;
    if (fork() != 0) return read(there[0], &nothing, 1) == 1;
    close(stay[1]);
    if (write(there[1], &nothing, 1) != 1) _exit(1);
    _exit(read(stay[0], &nothing, 1) == 0 ? 0 : 1);
  }
  void wait_until_locked() const {
    while (is_lock_free()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
};

constexpr std::uint64_t kForever = 3'600'000'000'000;  // ns: longer than any test

TEST_F(MachineForkTest, AKilledHolderOfTheLockIsNotOutlivedByItsChildsCopy) {
  const auto machine = open();
  int stay[2];
  ASSERT_EQ(pipe(stay), 0);
  Child parent([&] {
    std::string error;
    Machine* const mine = Machine::open(spec_, &error).release();
    std::thread([mine] { mine->spend_driver_time(kForever); }).detach();
    wait_until_locked();
    const Child child([] { return true; });
    return child.succeeded() && leave_child(stay);
  });
  ASSERT_TRUE(parent.succeeded());
  EXPECT_FALSE(is_lock_free());
  parent.kill_now();
  EXPECT_TRUE(is_lock_free()) << "the child of the killed process keeps the lock";
  close(stay[1]);
  close(stay[0]);
}

TEST_F(MachineForkTest, AHolderOfTheLockThatIsStoppedLetsGoFirstAndIsStoppedThen) {
  const std::string path = state_folder(spec_) + "/lock-of-a-test";
  const auto machine = open();
  TableLock lock;
  ASSERT_TRUE(lock.open(path, true));
  const pid_t holder = fork();
  if (holder == 0) {
    TableLock own;
    if (!own.open(path, false)) _exit(1);
    own.lock();
    raise(SIGSTOP);
    own.unlock();
    for (;;) pause();
  }
  int status = 0;
  ASSERT_EQ(waitpid(holder, &status, WUNTRACED), holder);
  ASSERT_TRUE(WIFSTOPPED(status));
  lock.lock();  // does not wait for ever
  ASSERT_EQ(waitpid(holder, &status, WUNTRACED), holder);
  EXPECT_TRUE(WIFSTOPPED(status)) << "it goes on";
  lock.unlock();
  kill(holder, SIGKILL);
  waitpid(holder, &status, 0);
  unlink(path.c_str());
}

TEST_F(MachineForkTest, AChildsExitLeavesItsParentsLockAndMemory) {
  auto machine = open();
  std::uint32_t id = 0;
  ASSERT_TRUE(machine->allocate(0, 2 << 20, &id));
  const pid_t child = fork();
  if (child == 0) {
    machine.reset();
    _exit(0);
  }
  int status = -1;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(machine->free_bytes(0), 62ull << 20) << "the child has given nothing back";
  EXPECT_TRUE(is_lock_free());
  EXPECT_EQ(machine->frames(id).at(0)[5], std::byte{});
}

TEST_F(MachineForkTest, AChildTakesNothingFromItsParentsMachineAndCanJoinByItself) {
  const auto machine = open();
  Child child([&] {
    std::uint32_t id = 0;
    if (machine->allocate(0, 2 << 20, &id)) return false;
    std::string error;
    Machine* const own = Machine::open(spec_, &error).release();
    return own != nullptr && own->allocate(0, 4 << 20, &id);
  });
  EXPECT_TRUE(child.succeeded());
  const auto usage = machine->usage(0);
  ASSERT_EQ(usage.size(), 1u);
  EXPECT_EQ(usage[0].pid, child.pid());
  EXPECT_EQ(usage[0].bytes, 4ull << 20);
}

TEST_F(MachineForkTest, AnObserverGoesOnInAChildAndSeesTheMachineGo) {
  auto machine = open();
  auto seen = observe();
  std::uint32_t id = 0;
  ASSERT_TRUE(machine->allocate(0, 2 << 20, &id));
  int go[2];
  ASSERT_EQ(pipe(go), 0);
  int saw[2];
  ASSERT_EQ(pipe(saw), 0);
  const pid_t child = fork();
  if (child == 0) {
    close(go[1]);
    char sees = seen->free_bytes(0) == 62ull << 20 && !seen->is_gone() ? 'y' : 'n';
    if (write(saw[1], &sees, 1) != 1) _exit(2);
    char nothing;
    if (read(go[0], &nothing, 1) != 0) _exit(3);  // until the machine has gone
    _exit(seen->is_gone() ? 0 : 1);
  }
  char sees = 'n';
  EXPECT_EQ(read(saw[0], &sees, 1), 1);
  EXPECT_EQ(sees, 'y');
  seen.reset();
  machine.reset();
  for (const int fd : {go[0], go[1], saw[0], saw[1]}) close(fd);
  int status = -1;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
}

TEST_F(MachineForkTest, AChildThatOutlivesItsParentsProgramDoesNotKeepWhatThatHad) {
  const auto machine = open();
  int stay[2];
  ASSERT_EQ(pipe2(stay, O_CLOEXEC), 0);
  Child parent([&] {
    std::string error;
    Machine* const mine = Machine::open(spec_, &error).release();
    std::uint32_t id = 0;
    return mine != nullptr && mine->allocate(0, 2 << 20, &id) && leave_child(stay);
  });
  ASSERT_TRUE(parent.succeeded());
  EXPECT_EQ(machine->free_bytes(0), 62ull << 20);
  parent.kill_now();
  EXPECT_EQ(machine->free_bytes(0), 64ull << 20) << "the child of the killed process has its mark";
  close(stay[1]);
  close(stay[0]);
}

TEST_F(MachineForkTest, AChildThatOutlivesItsParentKeepsNoMemoryOfTheDevice) {
  int stay[2];
  ASSERT_EQ(pipe(stay), 0);
  {
    Child parent([&] {
      std::string error;
      Machine* const mine = Machine::open(spec_, &error).release();
      std::uint32_t id = 0;
      return mine != nullptr && mine->allocate(0, 2 << 20, &id) && leave_child(stay);
    });
    ASSERT_TRUE(parent.succeeded());
    EXPECT_TRUE(has_memory());
  }
  remove_abandoned_pool_files();
  EXPECT_FALSE(has_memory()) << "the child of the killed process holds its memory";
  close(stay[1]);
  close(stay[0]);
}

}  // namespace
}  // namespace plexrl::simgpu
