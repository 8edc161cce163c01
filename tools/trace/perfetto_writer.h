#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tools/trace/perfetto.pb.h"

namespace plexrl::trace {

/// Writes a Perfetto trace: tracks, and slices, instants and counter values on them.
///
/// Times are CLOCK_BOOTTIME in ns. On one track, events are added in the order of their times.
class PerfettoWriter {
 public:
  using Track = std::uint64_t;
  static constexpr Track kTop = 0;

  /// What a viewer shows when a slice is selected.
  struct Argument {
    std::string name;
    std::string text;  ///< shown when not empty
    std::uint64_t number = 0;
  };
  using Arguments = std::vector<Argument>;

  /// Says that `boottime_ns` and `realtime_ns` are the same moment.
  void add_clock(std::int64_t boottime_ns, std::int64_t realtime_ns);

  /// Children of a track are shown in the order in which they are added.
  Track add_track(const std::string& name, Track parent = kTop);
  Track add_byte_counter(const std::string& name, Track parent = kTop);

  /// Slices of one track must not overlap. The second one of two that meet is added later.
  void add_slice(Track track, const std::string& name, std::int64_t start_ns, std::int64_t end_ns,
                 const Arguments& arguments);
  void add_instant(Track track, const std::string& name, std::int64_t at_ns,
                   const Arguments& arguments);
  void add_value(Track counter, std::int64_t at_ns, std::uint64_t value);

  std::string str() const { return trace_.SerializeAsString(); }

 private:
  perfetto::TracePacket* add_packet();
  perfetto::TrackDescriptor* describe(const std::string& name, Track parent);
  perfetto::TrackEvent* add_event(std::int64_t at_ns, Track track, perfetto::TrackEvent::Type type);

  perfetto::Trace trace_;
  Track last_track_ = kTop;
};

}  // namespace plexrl::trace
