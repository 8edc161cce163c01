#include "tools/trace/perfetto_writer.h"

namespace plexrl::trace {
namespace {

namespace pf = plexrl::perfetto;

constexpr std::uint32_t kSequence = 1;
constexpr std::uint32_t kIncrementalStateCleared = 1;
constexpr std::uint32_t kClockRealtime = 1, kClockBoottime = 6;

void annotate(pf::TrackEvent* event, const PerfettoWriter::Arguments& arguments) {
  for (const auto& argument : arguments) {
    pf::DebugAnnotation* annotation = event->add_debug_annotations();
    annotation->set_name(argument.name);
    if (argument.text.empty()) {
      annotation->set_uint_value(argument.number);
    } else {
      annotation->set_string_value(argument.text);
    }
  }
}

}  // namespace

pf::TracePacket* PerfettoWriter::add_packet() {
  pf::TracePacket* packet = trace_.add_packet();
  packet->set_trusted_packet_sequence_id(kSequence);
  if (trace_.packet_size() == 1) packet->set_sequence_flags(kIncrementalStateCleared);
  return packet;
}

void PerfettoWriter::add_clock(std::int64_t boottime_ns, std::int64_t realtime_ns) {
  pf::TracePacket* packet = add_packet();
  packet->set_timestamp(static_cast<std::uint64_t>(boottime_ns));
  pf::ClockSnapshot* snapshot = packet->mutable_clock_snapshot();
  auto* boottime = snapshot->add_clocks();
  boottime->set_clock_id(kClockBoottime);
  boottime->set_timestamp(static_cast<std::uint64_t>(boottime_ns));
  auto* realtime = snapshot->add_clocks();
  realtime->set_clock_id(kClockRealtime);
  realtime->set_timestamp(static_cast<std::uint64_t>(realtime_ns));
}

pf::TrackDescriptor* PerfettoWriter::describe(const std::string& name, Track parent) {
  pf::TrackDescriptor* track = add_packet()->mutable_track_descriptor();
  track->set_uuid(++last_track_);
  track->set_name(name);
  if (parent != kTop) track->set_parent_uuid(parent);
  track->set_child_ordering(pf::TrackDescriptor::EXPLICIT);
  track->set_sibling_order_rank(static_cast<std::int32_t>(last_track_));
  // Two jobs may have one name.
  track->set_sibling_merge_behavior(pf::TrackDescriptor::SIBLING_MERGE_BEHAVIOR_NONE);
  return track;
}

PerfettoWriter::Track PerfettoWriter::add_track(const std::string& name, Track parent) {
  return describe(name, parent)->uuid();
}

PerfettoWriter::Track PerfettoWriter::add_byte_counter(const std::string& name, Track parent) {
  pf::TrackDescriptor* track = describe(name, parent);
  track->mutable_counter()->set_unit(pf::CounterDescriptor::UNIT_SIZE_BYTES);
  return track->uuid();
}

pf::TrackEvent* PerfettoWriter::add_event(std::int64_t at_ns, Track track,
                                          pf::TrackEvent::Type type) {
  pf::TracePacket* packet = add_packet();
  packet->set_timestamp(static_cast<std::uint64_t>(at_ns));
  pf::TrackEvent* event = packet->mutable_track_event();
  event->set_type(type);
  event->set_track_uuid(track);
  return event;
}

void PerfettoWriter::add_slice(Track track, const std::string& name, std::int64_t start_ns,
                               std::int64_t end_ns, const Arguments& arguments) {
  pf::TrackEvent* begin = add_event(start_ns, track, pf::TrackEvent::TYPE_SLICE_BEGIN);
  begin->set_name(name);
  begin->add_categories("plexrl");
  annotate(begin, arguments);
  add_event(end_ns, track, pf::TrackEvent::TYPE_SLICE_END);
}

void PerfettoWriter::add_instant(Track track, const std::string& name, std::int64_t at_ns,
                                 const Arguments& arguments) {
  pf::TrackEvent* event = add_event(at_ns, track, pf::TrackEvent::TYPE_INSTANT);
  event->set_name(name);
  event->add_categories("plexrl");
  annotate(event, arguments);
}

void PerfettoWriter::add_value(Track counter, std::int64_t at_ns, std::uint64_t value) {
  add_event(at_ns, counter, pf::TrackEvent::TYPE_COUNTER)
      ->set_counter_value(static_cast<std::int64_t>(value));
}

}  // namespace plexrl::trace
