#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <iterator>

#include "tools/simgpu/driver/machine.h"

namespace plexrl::simgpu {

inline constexpr std::uint32_t kStateMagic = 0x53584c50;  // "PLXS"
inline constexpr std::uint32_t kStateVersion = 7;         ///< raised with every change of this file
inline constexpr int kMaxProcesses = 1024;
inline constexpr std::uint32_t kMaxAllocations = 1u << 16;
inline constexpr std::uint32_t kMaxFrames = 1u << 15;  ///< 64 GiB a device
inline constexpr std::uint32_t kNone = 0;              ///< ids and frame links count from 1

struct ProcessSlot {
  std::int32_t pid;             ///< 0: free
  std::uint32_t incarnation;    ///< of who has or had it last; unique in this machine's life
  std::uint64_t found_dead_ns;  ///< 0: not known to be dead

  void give_up() {
    pid = 0;
    found_dead_ns = 0;
  }
};

/// What others ask of a process's driver (Machine::order), by its slot. The numbers are futex
/// words: `asked` counts orders, `answered` follows when the last one has been carried out.
struct OrderWords {
  std::atomic<std::uint32_t> asked;
  std::atomic<std::uint32_t> answered;
  std::uint32_t begun;  ///< the last order that the process has read
  std::uint32_t what;   ///< ProcessOrder
  std::uint32_t timeout_ms;
  std::uint32_t state;      ///< ProcessState
  std::int32_t thread;      ///< that carries orders out; 0: none
  std::int32_t results[8];  ///< of order n at n % 8
};

struct Allocation {
  std::uint64_t tag;  ///< 0: free; else unique in this machine's life
  std::uint32_t device;
  std::uint32_t frame_count;
  std::uint32_t first_frame;  ///< 1 + index
  std::uint32_t was_exported;
  std::uint32_t is_parked;  ///< its bytes are in its process's host memory, or on the way
  std::uint32_t multicast;  ///< 1 + index of what it is as a multicast object; 0: memory
  std::uint64_t holders[kMaxProcesses / 64];  ///< a bit for each slot

  std::uint64_t& holder_word(int slot) { return holders[slot / 64]; }
  static std::uint64_t holder_bit(int slot) { return 1ull << (slot % 64); }
  bool is_held() const {
    return std::any_of(std::begin(holders), std::end(holders),
                       [](std::uint64_t word) { return word != 0; });
  }
  bool is_held_by(int slot) { return (holder_word(slot) & holder_bit(slot)) != 0; }
  void hold_by(int slot) { holder_word(slot) |= holder_bit(slot); }
  void drop_by(int slot) { holder_word(slot) &= ~holder_bit(slot); }
};

inline constexpr std::uint32_t kMaxMulticasts = 32;
inline constexpr std::uint32_t kMaxBinds = 512;  ///< of a multicast object

/// Memory that is bound to a multicast object. The process that bound it holds it.
struct MulticastBind {
  std::uint64_t bytes;  ///< 0: free
  std::uint64_t offset, memory_offset;
  std::uint64_t tag;         ///< of the allocation, which may be gone
  std::uint32_t allocation;  ///< id
  std::int32_t slot;         ///< of the process
};

struct MulticastObject {
  std::uint32_t is_taken;
  std::uint32_t team;          ///< devices that it is made for
  std::uint32_t devices;       ///< those added so far, a bit each
  std::uint32_t handle_types;  ///< CUmemAllocationHandleType
  std::uint64_t bytes;
  MulticastBind binds[kMaxBinds];
};

struct Frame {
  std::uint32_t allocation;  ///< id, or kNone
  std::uint32_t next;        ///< 1 + index of the allocation's next frame, or kNone
};

struct DeviceState {
  std::atomic<std::uint64_t> link_until[2];
  Machine::Counters counters;
  std::uint32_t frame_count;
  std::uint32_t free_frames;
  char pool_path[256];
  Frame frames[kMaxFrames];
};

/// The file `state` of a machine. Everything but the atomics is read and written under the lock.
struct MachineState {
  std::uint32_t magic;
  std::uint32_t version;
  char device_part[512];
  std::uint64_t next_tag;
  std::uint32_t next_allocation;
  std::uint32_t next_incarnation;
  std::atomic<std::uint64_t> driver_ns;
  ProcessSlot processes[kMaxProcesses];
  OrderWords orders[kMaxProcesses];
  Allocation allocations[kMaxAllocations];  ///< [id]; 0 is unused
  MulticastObject multicasts[kMaxMulticasts];
  DeviceState devices[kMaxDevices];
};

}  // namespace plexrl::simgpu
