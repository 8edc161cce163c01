#include "tools/simgpu/driver/machine.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>

#include "tools/simgpu/driver/clock.h"
#include "tools/simgpu/driver/first_touch.h"
#include "tools/simgpu/driver/machine_state.h"
#include "tools/simgpu/driver/pool_file.h"
#include "tools/simgpu/driver/shared_event.h"

namespace plexrl::simgpu {
namespace {

bool make_folders(const std::string& path) {
  for (std::size_t slash = path.find('/', 1);; slash = path.find('/', slash + 1)) {
    const std::string part = path.substr(0, slash);
    if (mkdir(part.c_str(), 0700) != 0 && errno != EEXIST) return false;
    if (slash == std::string::npos) return true;
  }
}

std::string errno_text(const std::string& what) { return what + ": " + std::strerror(errno); }

}  // namespace

std::unique_ptr<Machine> Machine::open(const Spec& spec, std::string* error) {
  std::unique_ptr<Machine> machine(new Machine);
  machine->spec_ = spec;
  machine->folder_ = state_folder(spec);
  machine->local_holds_.resize(kMaxAllocations);
  if (!make_folders(machine->folder_)) {
    *error = errno_text("can't make " + machine->folder_);
    return nullptr;
  }
  if (!machine->join(error)) return nullptr;
  return machine;
}

std::unique_ptr<Machine> Machine::observe(const std::string& name, std::string* error) {
  error->clear();
  std::unique_ptr<Machine> machine(new Machine);
  machine->spec_.name = name;
  machine->folder_ = state_folder(machine->spec_);
  if (!machine->lock_.open(machine->folder_ + "/lock", false)) {
    if (errno != ENOENT) *error = errno_text("can't read " + machine->folder_);
    return nullptr;
  }
  const Lock lock(machine->lock_);
  if (!machine->lock_.is_current()) return nullptr;
  if (access((machine->folder_ + "/state").c_str(), F_OK) != 0) return nullptr;
  if (!machine->attach(error)) return nullptr;
  if (machine->is_in_use()) machine->reap();
  const std::string text = "name=" + name + "," + machine->state_->device_part;
  if (!machine->is_in_use() || !parse_spec(text, &machine->spec_, error)) return nullptr;
  return machine;
}

/// Maps the file of the tables. The lock is held.
bool Machine::attach(std::string* error) {
  const std::string path = folder_ + "/state";
  const int fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  // The marks have an open file of their own: a mapping keeps its open file, also a child's copy.
  const bool is_open = fd >= 0 && alive_.open(path) && ftruncate(fd, sizeof(MachineState)) == 0;
  void* const memory =
      is_open ? mmap(nullptr, sizeof(MachineState), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0)
              : MAP_FAILED;
  if (memory == MAP_FAILED) *error = errno_text((is_open ? "can't map " : "can't make ") + path);
  if (fd >= 0) close(fd);
  if (memory == MAP_FAILED) return false;
  state_ = static_cast<MachineState*>(memory);
  return true;
}

/// Whether the tables are ones that this code understands and a process has them. The lock is held.
bool Machine::is_in_use() const {
  return state_->magic == kStateMagic && state_->version == kStateVersion &&
         std::any_of(std::begin(state_->processes), std::end(state_->processes),
                     [](const ProcessSlot& slot) { return slot.pid != 0; });
}

/// False when only the dead had the machine, and another one's making removed its memory since.
bool Machine::has_pools() const {
  return std::all_of(std::begin(state_->devices), std::end(state_->devices),
                     [](const DeviceState& device) {
                       return device.pool_path[0] == 0 || access(device.pool_path, F_OK) == 0;
                     });
}

bool Machine::join(std::string* error) {
  for (;;) {
    if (!lock_.open(folder_ + "/lock", true)) {
      // The last process may have removed the folder just now.
      if (errno == ENOENT && make_folders(folder_)) continue;
      *error = errno_text("can't open " + folder_ + "/lock");
      return false;
    }
    const Lock lock(lock_);
    if (!lock_.is_current()) continue;  // removed by the last process before it was locked
    if (!attach(error)) return false;
    if (is_in_use()) reap();
    // Of the dead alone, and wanted with other figures: a new machine.
    const bool in_use = is_in_use() && (has_pools() || spec_.device_part() == state_->device_part);
    if (in_use && spec_.device_part() != state_->device_part) {
      *error = "PLEXRL_SIMGPU: '" + spec_.name + "' is in use with other figures (" +
               state_->device_part + "; asked for " + spec_.device_part() +
               "): use another name= or the same figures";
      return false;
    }
    if (!in_use && !initialise(error)) return false;
    // What the dead had is still theirs until `free_delay` has passed; its contents are nobody's.
    if (in_use && !has_pools() && !make_pools(error)) return false;
    if (!map_pools(error)) return false;
    for (int slot = 0; slot < kMaxProcesses && slot_ < 0; ++slot) {
      if (state_->processes[slot].pid == 0 && alive_.take(slot)) slot_ = slot;
    }
    if (slot_ < 0) {
      *error = "simulated GPU '" + spec_.name + "' has " + std::to_string(kMaxProcesses) +
               " processes already";
      return false;
    }
    state_->processes[slot_] = {getpid(), ++state_->next_incarnation, 0};
    reset_orders(slot_);
    return true;
  }
}

bool Machine::initialise(std::string* error) {
  for (DeviceState& device : state_->devices) {
    if (device.pool_path[0] != 0) unlink(device.pool_path);
  }
  remove_abandoned_pool_files();
  remove_shared_events(folder_);
  std::memset(static_cast<void*>(state_), 0, sizeof *state_);
  std::snprintf(state_->device_part, sizeof state_->device_part, "%s", spec_.device_part().c_str());
  state_->next_tag = now_ns() | 1;
  for (int i = 0; i < spec_.gpus; ++i) {
    DeviceState& device = state_->devices[i];
    device.frame_count = device.free_frames =
        static_cast<std::uint32_t>(spec_.memory_bytes / kFrameBytes);
    const std::string path = pool_file_path(folder_, spec_.name, i, spec_.memory_bytes);
    std::snprintf(device.pool_path, sizeof device.pool_path, "%s", path.c_str());
  }
  if (!make_pools(error)) return false;
  state_->version = kStateVersion;
  state_->magic = kStateMagic;
  return true;
}

bool Machine::make_pools(std::string* error) {
  for (int i = 0; i < spec_.gpus; ++i) {
    const char* path = state_->devices[i].pool_path;
    pool_fds_.push_back(make_pool_file(path, spec_.memory_bytes));
    if (pool_fds_.back() >= 0) continue;
    *error = errno_text(std::string("can't make the memory of a simulated GPU, ") + path);
    return false;
  }
  return true;
}

bool Machine::map_pools(std::string* error) {
  for (int i = 0; i < spec_.gpus; ++i) {
    const char* path = state_->devices[i].pool_path;
    const bool is_made_here = static_cast<int>(pool_fds_.size()) > i;
    if (!is_made_here) pool_fds_.push_back(open_pool_file(path));
    const int fd = pool_fds_[static_cast<std::size_t>(i)];
    // Populated once and for all by who makes it: a fault in fresh shared memory costs far more
    // than the copy that meets it.
    void* memory = fd < 0 ? MAP_FAILED
                          : mmap(nullptr, spec_.memory_bytes, PROT_READ | PROT_WRITE,
                                 MAP_SHARED | (is_made_here ? MAP_POPULATE : 0), fd, 0);
    if (memory == MAP_FAILED) {
      *error = errno_text(std::string("can't map ") + path);
      return false;
    }
    madvise(memory, spec_.memory_bytes, MADV_DONTFORK);  // a child would keep it from being free
    begin_touches(i, state_->devices[i].frame_count, is_made_here);
    pools_.push_back(static_cast<std::byte*>(memory));
  }
  return true;
}

Machine::~Machine() {
  forks_.end();
  if (state_ != nullptr) leave();
  for (std::byte* pool : pools_) munmap(pool, spec_.memory_bytes);
  for (const int fd : pool_fds_) {
    if (fd >= 0) close(fd);
  }
  if (state_ != nullptr) munmap(state_, sizeof *state_);
}

void Machine::leave() {
  if (slot_ < 0) return;
  const Lock lock(lock_);
  for (std::uint32_t id = 1; id <= state_->next_allocation; ++id) drop_holder(id, slot_);
  state_->processes[slot_].give_up();
  slot_ = -1;
  reap();
  alive_.close();
  const bool empty = std::all_of(std::begin(state_->processes), std::end(state_->processes),
                                 [](const ProcessSlot& slot) { return slot.pid == 0; });
  if (!empty) return;
  for (std::uint32_t id = 1; id <= state_->next_allocation; ++id) {
    if (state_->allocations[id].was_exported != 0) unlink(token_path(id).c_str());
  }
  for (DeviceState& device : state_->devices) {
    if (device.pool_path[0] != 0) unlink(device.pool_path);
  }
  remove_shared_events(folder_);
  unlink((folder_ + "/state").c_str());
  unlink((folder_ + "/lock").c_str());
  rmdir(folder_.c_str());
}

/// Takes from dead processes what they held, once `free_delay` has passed. The lock is held.
void Machine::reap() {
  for (int slot = 0; slot < kMaxProcesses; ++slot) {
    ProcessSlot& process = state_->processes[slot];
    if (process.pid == 0 || slot == slot_) continue;
    if (process.found_dead_ns == 0) {
      if (alive_.is_taken(slot)) continue;
      process.found_dead_ns = now_ns();
    }
    // The program that this process was before its exec, which closed the driver's descriptors.
    const bool was_this = process.pid == getpid();
    if (!was_this && now_ns() < process.found_dead_ns + spec_.free_delay_ns) continue;
    for (std::uint32_t id = 1; id <= state_->next_allocation; ++id) drop_holder(id, slot);
    process.give_up();
  }
}

/// Frees what nobody has any more: what only the dead held, and what was exported and closed. The
/// lock is held.
void Machine::collect() {
  reap();
  for (std::uint32_t id = 1; id <= state_->next_allocation; ++id) free_if_unheld(id);
}

void Machine::drop_holder(std::uint32_t id, int slot) {
  Allocation& allocation = state_->allocations[id];
  if (allocation.tag == 0 || !allocation.is_held_by(slot)) return;
  allocation.drop_by(slot);
  if (allocation.multicast != 0) drop_binds(state_->multicasts[allocation.multicast - 1], slot);
  free_if_unheld(id);
}

void Machine::free_if_unheld(std::uint32_t id) {
  Allocation& allocation = state_->allocations[id];
  if (allocation.tag == 0 || allocation.is_held()) return;
  if (allocation.was_exported != 0) {
    if (descriptor_is_open(id)) return;
    unlink(token_path(id).c_str());
  }
  if (allocation.multicast != 0) state_->multicasts[allocation.multicast - 1] = {};
  give_frames(allocation);
  allocation = {};
}

void Machine::give_frames(Allocation& allocation) {
  DeviceState& device = state_->devices[allocation.device];
  for (std::uint32_t frame = allocation.first_frame; frame != kNone;) {
    Frame& entry = device.frames[frame - 1];
    frame = entry.next;
    entry = {};
    ++device.free_frames;
  }
  allocation.first_frame = kNone;
}

/// There must be as many.
void Machine::take_frames(std::uint32_t id, Allocation& allocation) {
  DeviceState& device = state_->devices[allocation.device];
  std::uint32_t* link = &allocation.first_frame;
  std::uint32_t left = allocation.frame_count;
  for (std::uint32_t frame = 0; left > 0; ++frame) {
    if (device.frames[frame].allocation != kNone) continue;
    device.frames[frame].allocation = id;
    *link = frame + 1;
    link = &device.frames[frame].next;
    --left;
  }
  device.free_frames -= allocation.frame_count;
}

/// 0: none.
std::uint32_t Machine::free_id() const {
  for (std::uint32_t i = 1; i < kMaxAllocations; ++i) {
    if (state_->allocations[i].tag == 0) return i;
  }
  return 0;
}

bool Machine::allocate(int device_index, std::uint64_t bytes, std::uint32_t* id) {
  const auto wanted = static_cast<std::uint32_t>((bytes + kFrameBytes - 1) / kFrameBytes);
  DeviceState& device = state_->devices[device_index];
  std::uint32_t taken = 0;
  {
    const Lock lock(lock_);
    if (slot_ < 0) return false;
    if (device.free_frames < wanted) collect();
    if (wanted == 0 || device.free_frames < wanted) return false;
    taken = free_id();
    if (taken == 0) return false;
    state_->next_allocation = std::max(state_->next_allocation, taken);
    Allocation& allocation = state_->allocations[taken];
    allocation = {};
    allocation.device = static_cast<std::uint32_t>(device_index);
    allocation.frame_count = wanted;
    take_frames(taken, allocation);
    allocation.tag = state_->next_tag;
    state_->next_tag += 2;
    allocation.hold_by(slot_);
    local_holds_[taken] = 1;
  }
  // Fresh memory shows nothing of its last holder. Outside the lock: the frames are ours already.
  for (std::byte* frame : frames(taken)) std::memset(frame, 0, kFrameBytes);
  *id = taken;
  return true;
}

void Machine::hold(std::uint32_t id) {
  const Lock lock(lock_);
  ++local_holds_[id];
}

void Machine::release(std::uint32_t id) {
  const Lock lock(lock_);
  drop_hold(id);
}

/// The lock is held.
void Machine::drop_hold(std::uint32_t id) {
  if (slot_ < 0 || local_holds_[id] == 0) return;
  if (--local_holds_[id] == 0) drop_holder(id, slot_);
}

std::vector<std::byte*> Machine::frames(std::uint32_t id) {
  std::vector<std::byte*> result;
  int device = 0;
  {
    const Lock lock(lock_);
    const Allocation& allocation = state_->allocations[id];
    device = static_cast<int>(allocation.device);
    result.reserve(allocation.frame_count);
    for (std::uint32_t frame = allocation.first_frame; frame != kNone;
         frame = state_->devices[allocation.device].frames[frame - 1].next) {
      result.push_back(pools_[allocation.device] + (frame - 1) * kFrameBytes);
    }
  }
  const std::byte* const pool = pools_[static_cast<std::size_t>(device)];
  for (std::byte* const frame : result) {
    touch_once(device, static_cast<std::uint32_t>((frame - pool) / kFrameBytes), frame);
  }
  return result;
}

bool Machine::map_for_host(std::uint32_t id, void* address) {
  const auto device = static_cast<std::size_t>(device_of(id));
  auto* at = static_cast<std::byte*>(address);
  for (const std::byte* frame : frames(id)) {
    const off_t offset = frame - pools_[device];
    if (mmap(at, kFrameBytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED | MAP_POPULATE,
             pool_fds_[device], offset) == MAP_FAILED) {
      return false;
    }
    madvise(at, kFrameBytes, MADV_DONTFORK);  // as the pools
    at += kFrameBytes;
  }
  return true;
}

int Machine::device_of(std::uint32_t id) const {
  return static_cast<int>(state_->allocations[id].device);
}
std::uint64_t Machine::bytes_of(std::uint32_t id) const {
  return state_->allocations[id].frame_count * kFrameBytes;
}
std::uint64_t Machine::tag_of(std::uint32_t id) const { return state_->allocations[id].tag; }

std::string Machine::token_path(std::uint32_t id) const {
  return folder_ + "/handle" + std::to_string(id);
}

// A descriptor is an open file with a shared flock: the lock belongs to the open file description,
// which travels with SCM_RIGHTS and dup and goes with the last descriptor, however its holder ends.
int Machine::export_descriptor(std::uint32_t id) {
  const Lock lock(lock_);
  Allocation& allocation = state_->allocations[id];
  const int fd = ::open(token_path(id).c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (fd < 0) return -1;
  const std::uint64_t content[2] = {id, allocation.tag};
  if (pwrite(fd, content, sizeof content, 0) != sizeof content || flock(fd, LOCK_SH) != 0) {
    close(fd);
    return -1;
  }
  allocation.was_exported = 1;
  return fd;
}

bool Machine::descriptor_is_open(std::uint32_t id) const {
  const int fd = ::open(token_path(id).c_str(), O_RDWR | O_CLOEXEC);
  if (fd < 0) return false;
  const bool open = flock(fd, LOCK_EX | LOCK_NB) != 0;
  close(fd);
  return open;
}

bool Machine::import_descriptor(int descriptor, std::uint32_t* id) {
  std::uint64_t content[2] = {0, 0};
  if (pread(descriptor, content, sizeof content, 0) != sizeof content) return false;
  if (content[0] == 0 || content[0] >= kMaxAllocations) return false;
  if (!import_id(static_cast<std::uint32_t>(content[0]), content[1])) return false;
  *id = static_cast<std::uint32_t>(content[0]);
  return true;
}

bool Machine::import_id(std::uint32_t id, std::uint64_t tag) {
  if (id == 0 || id >= kMaxAllocations || tag == 0) return false;
  const Lock lock(lock_);
  Allocation& allocation = state_->allocations[id];
  if (slot_ < 0 || allocation.tag != tag || allocation.is_parked != 0) return false;
  allocation.hold_by(slot_);
  ++local_holds_[id];
  return true;
}

bool Machine::is_gone() {
  const Lock lock(lock_);
  reap();
  return !is_in_use() || !lock_.is_current();
}

std::uint64_t Machine::total_bytes(int) const { return spec_.memory_bytes; }

std::uint64_t Machine::free_bytes(int device) {
  const Lock lock(lock_);
  reap();
  return state_->devices[device].free_frames * kFrameBytes;
}

std::vector<Machine::Usage> Machine::usage(int device) {
  const Lock lock(lock_);
  reap();
  std::vector<Usage> result;
  for (int slot = 0; slot < kMaxProcesses; ++slot) {
    if (state_->processes[slot].pid == 0) continue;
    std::uint64_t bytes = 0;
    for (std::uint32_t id = 1; id <= state_->next_allocation; ++id) {
      Allocation& allocation = state_->allocations[id];
      if (allocation.tag == 0 || static_cast<int>(allocation.device) != device) continue;
      if (allocation.first_frame == kNone) continue;  // parked, or a multicast object
      if (allocation.is_held_by(slot)) bytes += allocation.frame_count * kFrameBytes;
    }
    if (bytes > 0) result.push_back({state_->processes[slot].pid, bytes});
  }
  return result;
}

std::uint64_t Machine::book_transfer(int device, Direction direction, std::uint64_t bytes,
                                     std::uint64_t earliest) {
  if (spec_.link_bytes_per_s == 0) return earliest;
  DeviceState& shared = state_->devices[device];
  std::atomic<std::uint64_t>& until = shared.link_until[static_cast<int>(direction)];
  const std::uint64_t other =
      shared.link_until[1 - static_cast<int>(direction)].load(std::memory_order_relaxed);
  const double full_ns =
      static_cast<double>(bytes) * 1e9 / static_cast<double>(spec_.link_bytes_per_s) * spec_.slow;
  std::uint64_t seen = until.load(std::memory_order_relaxed);
  for (;;) {
    const std::uint64_t start = std::max(seen, earliest);
    // While the other direction is busy too, each keeps `duplex` of its rate.
    const double both_ns = other > start ? static_cast<double>(other - start) : 0.0;
    const double slowed_ns = std::min(full_ns / spec_.duplex, both_ns);
    const double length = slowed_ns + std::max(0.0, full_ns - slowed_ns * spec_.duplex);
    const std::uint64_t end = start + static_cast<std::uint64_t>(length);
    if (until.compare_exchange_weak(seen, end, std::memory_order_relaxed)) return end;
  }
}

void Machine::spend_driver_time(std::uint64_t ns) {
  if (ns == 0) return;
  const std::uint64_t length = static_cast<std::uint64_t>(static_cast<double>(ns) * spec_.slow);
  state_->driver_ns.fetch_add(length, std::memory_order_relaxed);
  const Lock lock(lock_);
  sleep_until_ns(now_ns() + length);
}

std::uint64_t Machine::driver_ns() const {
  return state_->driver_ns.load(std::memory_order_relaxed);
}

Machine::Counters& Machine::counters(int device) { return state_->devices[device].counters; }

std::array<std::uint8_t, 16> Machine::uuid(int device) const {
  return device_uuid(spec_.name, device);
}

std::array<std::uint8_t, 16> device_uuid(const std::string& name, int device) {
  const std::string text = name + "/" + std::to_string(device);
  std::array<std::uint8_t, 16> result{};
  for (int half = 0; half < 2; ++half) {
    std::uint64_t hash = 0xcbf29ce484222325ull + static_cast<std::uint64_t>(half);
    for (const char c : text) hash = (hash ^ static_cast<std::uint8_t>(c)) * 0x100000001b3ull;
    for (int i = 0; i < 8; ++i)
      result[static_cast<std::size_t>(half * 8 + i)] = static_cast<std::uint8_t>(hash >> (8 * i));
  }
  return result;
}

std::string uuid_text(const std::array<std::uint8_t, 16>& uuid) {
  char text[48];
  char* at = text + std::snprintf(text, sizeof text, "GPU-");
  for (std::size_t i = 0; i < uuid.size(); ++i) {
    const bool dash = i == 4 || i == 6 || i == 8 || i == 10;
    at += std::snprintf(at, static_cast<std::size_t>(text + sizeof text - at),
                        dash ? "-%02x" : "%02x", uuid[i]);
  }
  return text;
}

}  // namespace plexrl::simgpu
