#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>

#include "tools/simgpu/driver/alive_marks.h"

namespace plexrl::simgpu {

/// What processes share of an event with CU_EVENT_INTERPROCESS: how often it was recorded and which
/// records the devices have reached. A small file in the machine's folder, named by a random tag.
/// The maker removes the name; who has it open goes on.
///
/// A record of a process that dies, or becomes another program by exec, counts as reached, so that
/// nobody waits for the dead.
///
/// Threads: any.
class SharedEvent {
 public:
  /// nullptr when the file can't be made (errno).
  static std::shared_ptr<SharedEvent> make(const std::string& folder);
  /// nullptr when there is no such event.
  static std::shared_ptr<SharedEvent> open(const std::string& folder, std::uint64_t tag);
  ~SharedEvent();
  SharedEvent(const SharedEvent&) = delete;
  SharedEvent& operator=(const SharedEvent&) = delete;

  std::uint64_t tag() const { return tag_; }
  /// Begins a record; returns its number, from 1.
  std::uint64_t begin_record();
  /// A device has reached the record.
  void finish_record(std::uint64_t number);
  /// The latest record's number; 0: never recorded.
  std::uint64_t recorded() const;
  bool is_reached(std::uint64_t number) const;
  /// Blocks for `ns` at most, until is_reached.
  void wait(std::uint64_t number, std::uint64_t ns) const;

 private:
  struct Words;
  SharedEvent() = default;
  static std::shared_ptr<SharedEvent> map(int fd, const std::string& path, std::uint64_t tag);
  std::string made_path_;  ///< empty: opened
  AliveMarks recorders_;   ///< by pid
  std::once_flag taken_;   ///< its mark
  std::atomic<bool> has_recorded_{false};
  std::uint64_t tag_ = 0;
  Words* words_ = nullptr;
};

/// How the files are called by which the ranks of a communicator meet (tools/simgpu/nccl).
inline constexpr char kCommunicatorPrefix[] = "nccl-";

/// Removes what killed makers left in the folder, of events and of communicators.
void remove_shared_events(const std::string& folder);

}  // namespace plexrl::simgpu
