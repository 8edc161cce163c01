#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "interpose/driver.h"

namespace plexrl::shim::testing {

/// A driver that keeps state instead of a GPU: it fills plexrl::driver with functions that work on
/// the newest FakeDriver.
///
/// The one kernel that it knows is that of chunk_hash.h, which it runs at once.
///
/// Physical handles hold real bytes; an address is translated through the mappings, and a copy that
/// meets an unmapped byte fails as the driver's does. HBM has a size. Copies happen at once, or as
/// late as the driver may make them. Streams and events are busy while a test says so. Any call can
/// be told to fail at its N-th use.
class FakeDriver {
 public:
  explicit FakeDriver(std::size_t hbm_bytes = std::size_t{1} << 30);
  ~FakeDriver();
  FakeDriver(const FakeDriver&) = delete;
  FakeDriver& operator=(const FakeDriver&) = delete;

  /// The N-th call of `name` from now on (1 is the next) returns `result` instead of doing
  /// anything.
  void fail(const std::string& name, int nth, CUresult result);
  /// Every call of `name` fails until `result` is CUDA_SUCCESS.
  void fail_always(const std::string& name, CUresult result);
  int calls(const std::string& name) const;
  /// The names of all calls so far.
  std::vector<std::string> called() const;
  /// From now on a call of `seed`'s choice fails with OUT_OF_MEMORY, one in `every` on average; 0:
  /// none any more. Calls that give back never do.
  void fail_at_random(std::uint64_t seed, unsigned every);
  /// From now on what streams are given (copies, fills, kernels) is done when somebody waits for
  /// the stream, or for an event behind it, and not before.
  void be_late();
  /// Work given to streams whose memory was unmapped or freed before somebody had waited for it.
  int strayed() const;
  /// The streams that copies of this name went into.
  std::set<CUstream> streams_used(const std::string& name) const;

  void set_busy(CUstream stream, bool busy);
  void set_current(CUcontext context);
  CUcontext make_context();
  /// One with nodes that allocate so much each.
  CUgraph make_graph(std::vector<std::size_t> allocations);

  /// The job's view of device memory, through the mappings. False where something is not mapped.
  bool write(std::uint64_t address, const std::vector<std::byte>& bytes);
  bool read(std::uint64_t address, std::vector<std::byte>* bytes) const;

  std::size_t used_bytes() const;
  std::size_t mapped_bytes() const;
  std::size_t registered_ranges() const;
  std::size_t live_contexts() const;

  // What the functions of the table are made of.
  CUresult count(const char* name);
  /// `work` touches `bytes` of device memory at `address`. Done now, or when it is waited for.
  CUresult submit(CUstream stream, std::uint64_t address, std::size_t bytes,
                  std::function<CUresult()> work);
  /// From the device to `out`, or to it from `in`; the other one is null.
  bool copy(std::uint64_t address, std::byte* out, const std::byte* in, std::size_t bytes);
  void mark(CUevent event, CUstream stream);
  CUresult finish(CUstream stream);
  CUresult finish(CUevent event);
  /// Somebody takes the bytes at `address` away.
  void expect_unused(std::uint64_t address, std::size_t bytes);
  struct Mapping {
    std::size_t bytes;
    std::uint64_t handle;
    bool accessible;
  };
  mutable std::recursive_mutex mutex;
  std::size_t hbm_bytes;
  std::size_t used = 0;
  std::map<std::uint64_t, int> imported;  ///< releases that a handle takes more than its first
  /// What is bound to multicast objects: object and offset -> bytes.
  std::map<std::pair<std::uint64_t, std::size_t>, std::size_t> bound;
  std::map<std::uint64_t, unsigned> sync_memops;  ///< the attribute of a handle, where it was set
  std::map<CUgraph, std::vector<std::size_t>> graphs;  ///< what their nodes allocate
  std::map<CUgraphExec, std::size_t> execs;            ///< what they take in all
  std::map<CUgraphExec, std::size_t> left_behind;      ///< of it by those that free by themselves
  std::size_t graph_memory = 0;                        ///< that the driver has taken for graphs
  std::map<std::uint64_t, std::vector<std::byte>> handles;
  std::map<std::uint64_t, Mapping> mappings;
  std::map<std::uint64_t, std::vector<std::byte>>
      own_memory;                               ///< of cuMemAlloc, not counted as used
  std::map<std::uint64_t, std::size_t> pinned;  ///< of cuMemHostAlloc
  std::map<void*, std::size_t> registered;
  std::set<CUstream> busy;
  std::set<CUstream> streams;
  std::set<CUstream> capturing;
  std::map<CUevent, CUstream> events;  ///< what each was recorded on last
  std::set<CUcontext> contexts;
  std::vector<std::pair<CUstream, CUevent>> waits;
  std::map<std::string, std::set<CUstream>> copies_in;
  std::uint64_t next_handle = 1;
  std::uint64_t next_object = 0x1000;
  std::uint64_t next_address = std::uint64_t{1} << 40;
  bool has_vmm = true;
  bool has_gpu_direct = false;

 private:
  void become_the_driver();  ///< fake_driver_calls.cc has the calls
  void have_graphs();        ///< fake_driver_graphs.cc has those about graphs
  void have_kernel();        ///< fake_driver_kernel.cc has those about the one kernel
  void share();              ///< fake_driver_shares.cc has those about memory of several processes
  std::pair<std::byte*, std::size_t> find(std::uint64_t address);
  struct Late {
    std::uint64_t address;
    std::size_t bytes;
    std::function<CUresult()> work;
  };
  struct Queue {
    std::deque<Late> late;
    std::uint64_t finished = 0;  ///< pieces of work; those in `late` have the next numbers
  };
  CUresult finish(CUstream stream, std::uint64_t number);

  std::map<std::string, int> counts_;
  std::map<std::string, std::pair<int, CUresult>> failures_;
  std::map<std::string, CUresult> always_;
  std::mt19937_64 random_;
  unsigned fails_one_in_ = 0;
  bool is_late_ = false;
  int strayed_ = 0;
  std::map<CUstream, Queue> queues_;
  std::map<CUevent, std::pair<CUstream, std::uint64_t>> marks_;  ///< up to which piece of work
};

}  // namespace plexrl::shim::testing
