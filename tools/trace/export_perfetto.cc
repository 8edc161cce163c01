#include "tools/trace/export_perfetto.h"

#include <algorithm>
#include <array>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tools/trace/perfetto.pb.h"
#include "tools/trace/report_json.h"
#include "tools/trace/summary.h"

namespace plexrl::trace {
namespace {

namespace pf = plexrl::perfetto;

constexpr std::uint32_t kSequence = 1;
constexpr std::uint32_t kClockRealtime = 1, kClockBoottime = 6;

struct NamedState {
  const char* state;
  const char* name;
};
constexpr std::array<NamedState, 6> kShown = {{{"running", "running"},
                                               {"waiting", "waiting"},
                                               {"draining", "draining"},
                                               {"loading", "paging"},
                                               {"queued", "queued"},
                                               {"paused", "paused"}}};

const char* shown_name(const std::string& state) {
  for (const NamedState& shown : kShown) {
    if (state == shown.state) return shown.name;
  }
  return nullptr;
}

bool is_holding(const std::string& state) {
  return state == "running" || state == "loading" || state == "draining";
}

class Exporter {
 public:
  explicit Exporter(const Model& model) : model_(model) {}

  std::string run() {
    add_clock();
    const std::string suffix = model_.simulated ? " (simulated)" : "";
    const std::string node = model_.node.empty() ? "node" : model_.node;
    const auto gpus = add_track("GPUs of " + node + suffix, 0);
    for (const Gpu& gpu : model_.gpus) add_gpu(gpu, gpus);
    const auto jobs = add_track("Jobs on " + node + suffix, 0);
    for (const Job& job : model_.jobs) add_job(job, jobs);
    add_memory(jobs);
    add_problems(jobs);
    return trace_.SerializeAsString();
  }

 private:
  struct Held {
    Slice slice;
    const Gang* gang;  ///< null between two holders
  };

  std::string gpu_slice_name(const Held& held) const {
    if (!held.gang) return held.slice.state;
    const std::string name = model_.job_name(held.gang->job_id);
    const std::string state = shown_name(held.slice.state);
    return state == "running" ? name : absl::StrCat(name, " (", state, ")");
  }

  pf::TracePacket* add_packet() {
    pf::TracePacket* packet = trace_.add_packet();
    packet->set_trusted_packet_sequence_id(kSequence);
    if (trace_.packet_size() == 1) packet->set_sequence_flags(1);
    return packet;
  }

  void add_clock() {
    pf::TracePacket* packet = add_packet();
    if (!model_.realtime_at_0) return;
    pf::ClockSnapshot* snapshot = packet->mutable_clock_snapshot();
    const auto at = static_cast<std::uint64_t>(model_.start_ns);
    packet->set_timestamp(at);
    auto* boottime = snapshot->add_clocks();
    boottime->set_clock_id(kClockBoottime);
    boottime->set_timestamp(at);
    auto* realtime = snapshot->add_clocks();
    realtime->set_clock_id(kClockRealtime);
    realtime->set_timestamp(static_cast<std::uint64_t>(*model_.realtime_at_0 + model_.start_ns));
  }

  std::uint64_t add_track(const std::string& name, std::uint64_t parent, bool is_counter = false) {
    pf::TrackDescriptor* track = add_packet()->mutable_track_descriptor();
    track->set_uuid(++last_track_);
    track->set_name(name);
    if (parent != 0) track->set_parent_uuid(parent);
    if (is_counter) {
      track->mutable_counter()->set_unit(pf::CounterDescriptor::UNIT_SIZE_BYTES);
    }
    return last_track_;
  }

  pf::TrackEvent* add_event(std::int64_t at, std::uint64_t track, pf::TrackEvent::Type type) {
    pf::TracePacket* packet = add_packet();
    packet->set_timestamp(static_cast<std::uint64_t>(at));
    pf::TrackEvent* event = packet->mutable_track_event();
    event->set_type(type);
    event->set_track_uuid(track);
    return event;
  }

  static void annotate(pf::TrackEvent* event, const std::string& name, const std::string& value) {
    if (value.empty()) return;
    pf::DebugAnnotation* annotation = event->add_debug_annotations();
    annotation->set_name(name);
    annotation->set_string_value(value);
  }

  void add_slice(std::uint64_t track, const std::string& name, const Gang* gang,
                 const Slice& slice) {
    pf::TrackEvent* begin = add_event(slice.start_ns, track, pf::TrackEvent::TYPE_SLICE_BEGIN);
    begin->set_name(name);
    begin->add_categories("plexrl");
    annotate(begin, "state", slice.state);
    if (gang) annotate(begin, "job", gang->job_id);
    annotate(begin, "epoch", epoch_text(slice.generation, slice.counter));
    annotate(begin, "reason", slice.reason);
    add_event(slice.end_ns, track, pf::TrackEvent::TYPE_SLICE_END);
  }

  // What happened on the GPU: its holders, and the time between them when bytes moved out. A
  // withdrawn gang may still drain while the next one loads, which Perfetto can't nest, so each
  // slice is cut where the next begins.
  void add_gpu(const Gpu& gpu, std::uint64_t parent) {
    const auto track =
        add_track(absl::StrCat("GPU ", gpu.index, gpu.name.empty() ? "" : " ", gpu.name), parent);
    std::vector<Held> held;
    Pieces covered;
    for (const Gang& gang : model_.gangs) {
      for (const Slice& slice : gang.slices) {
        if (!is_holding(slice.state) || ((slice.gpus_mask >> gpu.index) & 1) == 0) continue;
        held.push_back({slice, &gang});
        covered.emplace_back(slice.start_ns, slice.end_ns);
      }
    }
    for (const auto& [start, end] : subtract(switches_of(model_, gpu.index), merge(covered))) {
      held.push_back({Slice{start, end, "switching", 0, 0, 0, ""}, nullptr});
    }
    std::stable_sort(held.begin(), held.end(), [](const Held& a, const Held& b) {
      return a.slice.start_ns < b.slice.start_ns;
    });
    for (std::size_t i = 0; i < held.size(); ++i) {
      Slice& slice = held[i].slice;
      if (i + 1 < held.size()) {
        slice.end_ns = std::min(slice.end_ns, held[i + 1].slice.start_ns);
      }
      if (slice.length_ns() > 0) add_slice(track, gpu_slice_name(held[i]), held[i].gang, slice);
    }
  }

  void add_job(const Job& job, std::uint64_t parent) {
    for (const Gang* gang : model_.gangs_of(job.id)) {
      const auto track =
          add_track(model_.job_name(job.id) + " gang " + std::to_string(gang->id), parent);
      for (const Slice& slice : gang->slices) {
        if (const char* name = shown_name(slice.state)) add_slice(track, name, gang, slice);
      }
    }
  }

  void add_memory(std::uint64_t parent) {
    std::map<std::pair<std::string, std::uint32_t>, std::uint64_t> tracks;
    for (const MemoryPoint& point : model_.memory) {
      std::uint64_t& track = tracks[{point.job_id, point.gpu}];
      if (track == 0) {
        track = add_track("Resident bytes of " + model_.job_name(point.job_id) + " on GPU " +
                              std::to_string(point.gpu),
                          parent, /*is_counter=*/true);
      }
      add_event(point.at_ns, track, pf::TrackEvent::TYPE_COUNTER)
          ->set_counter_value(
              static_cast<std::int64_t>(point.resident_bytes + point.unpageable_bytes));
    }
  }

  void add_problems(std::uint64_t parent) {
    if (model_.problems.empty()) return;
    const auto track = add_track("Problems", parent);
    for (const Problem& problem : model_.problems) {
      pf::TrackEvent* event = add_event(problem.at_ns, track, pf::TrackEvent::TYPE_INSTANT);
      event->set_name(problem.record.what());
      annotate(event, "job", problem.record.job_id());
      annotate(event, "text", problem.record.text());
    }
  }

  const Model& model_;
  pf::Trace trace_;
  std::uint64_t last_track_ = 0;
};

}  // namespace

std::string export_perfetto(const Model& model) { return Exporter(model).run(); }

}  // namespace plexrl::trace
