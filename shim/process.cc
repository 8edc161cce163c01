#include "shim/process.h"

#include <pthread.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <mutex>

#include "interpose/driver.h"
#include "interpose/handlers.h"
#include "shim/absence.h"
#include "shim/boottime.h"
#include "shim/gate.h"
#include "shim/log.h"

namespace plexrl::shim {
namespace {

enum class Mode { kNotStarted, kShared, kUnshared };

constinit std::atomic<Mode> mode{Mode::kNotStarted};
constinit std::atomic<Process*> the_process{nullptr};
constinit std::atomic<const char*> exclusive_reason{nullptr};

/// How long a manager that is being restarted is waited for before the process runs unshared, and
/// how many of them may go before they have answered.
constexpr std::uint64_t kNobodyNs = 15'000'000'000;
constexpr int kMostLost = 8;
constexpr timespec kDialPause{0, 200'000'000};

bool about_to_wait() noexcept {
  CUcontext context = nullptr;
  CUdevice device = 0;
  Process* const current = Process::start_with_current(&context, &device);
  Process* const process = current != nullptr ? current : Process::started();
  if (process == nullptr) return false;
  // Without any GPU there will be no lease, and the driver has an error for the call.
  if (process->devices.mask() == 0) return false;
  process->agent.notify();
  return true;
}

void busy_again() noexcept {
  if (Process* const process = Process::started()) {
    process->keeper.busy_again();
    process->agent.notify();
  }
}

bool nothing_runs() noexcept {
  Process* const process = Process::started();
  return process != nullptr && process->keeper.is_quiet();
}

void wake_agent() noexcept {
  if (Process* const process = Process::started()) process->agent.notify();
}

bool still_shared(std::uint64_t range) noexcept {
  Process* const process = Process::started();
  try {
    return process != nullptr && process->sharing.still_shared(range);
  } catch (...) {
    return true;  // better a range too many than bytes that another process misses
  }
}

bool make_room(CUdevice device) noexcept {
  Process* const process = Process::started();
  try {
    return process != nullptr && process->pools.make_room(device);
  } catch (...) {
    return false;
  }
}

void close_import(std::uint64_t range) noexcept {
  Process* const process = Process::started();
  if (process == nullptr) return;
  try {
    process->sharing.close(range);
  } catch (...) {
    // It stays until this process ends.
  }
  process->agent.notify();
}

void say_exiting() {
  Process* const process = Process::started();
  if (process == nullptr) return;
  process->agent.say_exiting();
  process->pager.begin_exit();
}

/// The agent and the driver's threads are gone, the socket is the parent's.
void become_child() {
  if (Process* const parents = Process::started()) parents->client.connection().leave_to_parent();
  mode.store(Mode::kUnshared, std::memory_order_release);
  the_process.store(nullptr, std::memory_order_release);
  reset_slots_after_fork();
  absence.end();
  gate.open();
}

void run_unshared(const char* why) noexcept {
  if (why != nullptr) log_user("not sharing the GPU: %s", why);
  mode.store(Mode::kUnshared, std::memory_order_release);
  gate.open();
}

/// A manager that is being restarted is waited for.
Client::Handshake join_patiently(Process& process, wire::Error* why) {
  std::uint64_t seen_ns = boottime_ns();
  for (int lost = 0;;) {
    const Client::Handshake handshake = process.join(why);
    if (handshake == Client::Handshake::kLost && ++lost < kMostLost) {
      seen_ns = boottime_ns();
    } else if (handshake != Client::Handshake::kNobody || boottime_ns() - seen_ns > kNobodyNs) {
      return handshake;
    }
    ::nanosleep(&kDialPause, nullptr);
  }
}

Process* make_process() {
  log_configure(std::getenv("PLEXRL_LOG"));
  const auto identity = identity_from_environment();
  const char* const path = std::getenv("PLEXRL_SOCKET");
  if (!identity || path == nullptr) {
    run_unshared("no job in the environment; start the program with plexrl-run");
    return nullptr;
  }
  const std::string socket = path;
  auto process = std::make_unique<Process>(*identity, [socket] { return dial(socket.c_str()); });
  const char* const exports = std::getenv("PLEXRL_EXPORT");
  process->exports_are_real = exports != nullptr && std::strcmp(exports, "real") == 0;
  ranges().set_whole_exports(process->exports_are_real);
  const char* const evict = std::getenv("PLEXRL_EVICT");
  if (evict != nullptr && std::strcmp(evict, "checkpoint") == 0) absence.enable(&wake_agent);
  wire::Error why{};
  switch (join_patiently(*process, &why)) {
    case Client::Handshake::kNobody:
    case Client::Handshake::kLost:
      run_unshared(lacks_descriptors()
                       ? "no descriptor is free in this process: raise its limit of open files "
                         "(ulimit -n)"
                       : "no node manager answers");
      return nullptr;
    case Client::Handshake::kRefused:
      run_unshared(why.text);
      return nullptr;
    case Client::Handshake::kAdmitted:
      break;
  }
  pthread_atfork(nullptr, nullptr, &become_child);
  std::atexit(&say_exiting);
  return process.release();  // never destroyed: others' destructors still call the driver
}

}  // namespace

constinit Gate gate{{&about_to_wait, &busy_again}};

Process::Process(Identity identity, Client::Dial dial)
    : client(identity, std::move(dial)),
      devices(client, &make_room),
      store(&client),
      slab_worker(store, contexts()),
      disk(client),
      spill(&disk),
      pager(ranges(), store, contexts(), &spill),
      graph_memory(devices, unpageable),
      memory(ranges(), pager, devices, {&nothing_runs, &wake_agent, &wake_agent, &still_shared}),
      pools(memory, devices, &nothing_runs, &close_import),
      sharing({client, devices, ranges(), pager, store, memory, &wake_agent}),
      ipc(sharing),
      vmm(pager, memory, sharing),
      pins(ranges(), devices),
      communicators(client, &wake_agent),
      keeper({client, devices, ranges(), pager, gate, activity(),
              [this] {
                memory.release_deferred();
                pools.all_finished();
              },
              [this] {
                pools.at_rest();
                graph_memory.count_if_idle();
              },
              [this](std::uint64_t quiet_ns) { return leave_gpu(quiet_ns); },
              [this] { back_on_gpu(); }}),
      reporter(client, devices, ranges(), unpageable),
      agent({client, devices, keeper, reporter, ranges(), sharing, store, communicators,
             slab_worker, spill, disk}) {}

std::optional<DeviceMemory::Allocation> Process::find(std::uint64_t address) {
  if (const auto found = memory.find(address)) return found;
  if (const auto found = pools.find(address)) return found;
  return ipc.find(address);
}

std::optional<Process::Backing> Process::backing(std::uint64_t address) {
  if (const auto found = find(address)) {
    return Backing{found->device, address, found->start, found->bytes};
  }
  const auto mapped = vmm.find(address);
  const auto range = mapped ? vmm.range_of(mapped->handle) : std::nullopt;
  if (!range) return std::nullopt;
  return Backing{mapped->device, *range + (address - mapped->start), *range, mapped->bytes};
}

const char* Process::leave_gpu(std::uint64_t quiet_ns) {
  if (const char* const why_not = absence.begin(quiet_ns)) return why_not;
  store.end_registrations();
  spill.end_registrations();
  return nullptr;
}

void Process::back_on_gpu() {
  if (!absence.is_on()) return;
  // Nobody but the manager may have brought it back; where that is gone for good we do it.
  CUprocessState state{};
  if (driver.cuCheckpointProcessGetState(::getpid(), &state) == CUDA_SUCCESS &&
      state != CU_PROCESS_STATE_RUNNING) {
    driver.cuCheckpointProcessRestore(::getpid(), nullptr);
    driver.cuCheckpointProcessUnlock(::getpid(), nullptr);
  }
  store.allow_registering();
  spill.allow_registering();
  absence.end();
  agent.notify();
}

Client::Handshake Process::join(wire::Error* why) {
  const Client::Handshake handshake = client.connect(nullptr, why);
  if (handshake != Client::Handshake::kAdmitted) return handshake;
  gate.prepare();
  const wire::Welcome& welcome = client.welcome();
  ranges().set_geometry(welcome.chunk_bytes, 0);
  store.set_slab_bytes(welcome.chunk_bytes);
  spill.set_piece_bytes(welcome.chunk_bytes);
  keeper.set_grace(welcome.grace_ns);
  if (const char* reason = exclusive_reason.load(std::memory_order_acquire)) {
    keeper.set_exclusive(reason);
  }
  the_process.store(this, std::memory_order_release);
  if (!agent.start()) {
    the_process.store(nullptr, std::memory_order_release);
    client.disconnect();
    std::strcpy(why->text, "no thread for the agent");
    return Client::Handshake::kRefused;
  }
  mode.store(Mode::kShared, std::memory_order_release);
  return handshake;
}

void Process::forget() noexcept {
  the_process.store(nullptr, std::memory_order_release);
  exclusive_reason.store(nullptr, std::memory_order_release);
  mode.store(Mode::kNotStarted, std::memory_order_release);
}

Process* Process::started() noexcept { return the_process.load(std::memory_order_acquire); }

Process* Process::start() noexcept {
  switch (mode.load(std::memory_order_acquire)) {
    case Mode::kShared:
      return started();
    case Mode::kUnshared:
      return nullptr;
    case Mode::kNotStarted:
      break;
  }
  const int saved_errno = errno;
  static std::mutex& start_mutex = *new std::mutex;
  Process* process = nullptr;
  {
    const std::lock_guard lock(start_mutex);
    if (mode.load(std::memory_order_acquire) == Mode::kNotStarted) {
      try {
        process = make_process();
      } catch (...) {
        run_unshared("out of memory");
      }
    } else {
      process = started();
    }
  }
  errno = saved_errno;
  return process;
}

Process* Process::start_with_current(CUcontext* context, CUdevice* device) noexcept {
  if (mode.load(std::memory_order_acquire) == Mode::kUnshared) return nullptr;
  const auto current = current_context();
  if (!current) return nullptr;
  Process* const process = start();
  if (process == nullptr) return nullptr;
  *context = current->context;
  *device = current->device;
  try {
    if (process->use(current->context, current->device) != Devices::Attach::kAttached) {
      return nullptr;
    }
  } catch (...) {
    return nullptr;
  }
  return process;
}

Devices::Attach Process::use(CUcontext context, CUdevice device) {
  const Devices::Attach attach = devices.attach(device);
  if (attach == Devices::Attach::kAttached) {
    contexts().add(context, device);
  } else if (attach == Devices::Attach::kUnknown && devices.mask() == 0) {
    run_unshared("the node manager does not manage this GPU");
    the_process.store(nullptr, std::memory_order_release);
  }
  return attach;
}

void note_exclusive(const char* reason) noexcept {
  const char* expected = nullptr;
  exclusive_reason.compare_exchange_strong(expected, reason, std::memory_order_acq_rel);
  Process* const process = Process::started();
  if (process == nullptr) return;
  process->keeper.set_exclusive(reason);
  process->agent.notify();
}

}  // namespace plexrl::shim
