#include "tools/trace/export_perfetto.h"

#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tools/trace/perfetto_writer.h"
#include "tools/trace/report_json.h"
#include "tools/trace/summary.h"

namespace plexrl::trace {
namespace {

using Track = PerfettoWriter::Track;
using Arguments = PerfettoWriter::Arguments;

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

void add_text(Arguments& arguments, const char* name, const std::string& text) {
  if (!text.empty()) arguments.push_back({name, text});
}

class Exporter {
 public:
  explicit Exporter(const Model& model) : model_(model) {
    std::map<std::string, int> namesakes;
    for (const Job& job : model.jobs) ++namesakes[model.job_name(job.id)];
    for (const Job& job : model.jobs) {
      std::string& label = labels_[job.id] = model.job_name(job.id);
      if (namesakes[label] > 1) absl::StrAppend(&label, " (", job.id.substr(0, 8), ")");
    }
    for (const MemoryPoint& point : model.memory) {
      memory_[{point.job_id, point.gpu}].push_back(&point);
    }
    collect_moved();
  }

  std::string run() {
    if (model_.realtime_at_0) {
      writer_.add_clock(model_.start_ns, *model_.realtime_at_0 + model_.start_ns);
    }
    for (const Gpu& gpu : model_.gpus) add_gpu(gpu);
    for (const Job& job : model_.jobs) add_job(job);
    add_problems();
    return writer_.str();
  }

 private:
  struct Moved {
    std::int64_t at_ns;
    std::uint64_t bytes;
  };
  struct MovedOfGang {
    std::vector<Moved> out, in;
  };
  struct Held {
    std::int64_t start_ns, end_ns;
    const Slice* slice;  ///< null between two holders
    const Gang* gang;
  };

  // As the summary counts: by what processes told, or in a trace without that, by the switches.
  void collect_moved() {
    const auto add = [&](const std::string& job, std::uint64_t gang, std::int64_t at_ns,
                         std::uint64_t out_bytes, std::uint64_t in_bytes) {
      MovedOfGang& moved = moved_[{job, gang}];
      if (out_bytes > 0) moved.out.push_back({at_ns, out_bytes});
      if (in_bytes > 0) moved.in.push_back({at_ns, in_bytes});
    };
    for (const auto& [at_ns, record] : model_.paging) {
      add(record.job_id(), record.gang(), at_ns, record.out_bytes(), record.in_bytes());
    }
    if (!model_.paging.empty()) return;
    for (const auto& [at_ns, record] : model_.swaps) {
      add(record.out_job_id(), record.out_gang(), at_ns, record.out_bytes(), 0);
      add(record.in_job_id(), record.in_gang(), at_ns, 0, record.in_bytes());
    }
  }

  /// How the job is called: with its id where another one has its name.
  const std::string& label_of(const std::string& job_id) const { return labels_.at(job_id); }

  void add_gpu(const Gpu& gpu) {
    std::string name = absl::StrCat("GPU ", gpu.index);
    if (!model_.node.empty()) absl::StrAppend(&name, " of ", model_.node);
    if (!gpu.name.empty()) absl::StrAppend(&name, ": ", gpu.name);
    if (gpu.simulated) name += " (simulated)";
    const Track track = writer_.add_track(name);
    for (const Held& held : holders_of(gpu)) add_held(track, held);
    add_switches(gpu, track);
    for (const Job& job : model_.jobs) add_memory(job, gpu, track);
  }

  // What happened on the GPU: who ran; else who was loading or draining, the one that loads first,
  // as a withdrawn gang may still drain meanwhile; else whether bytes moved out. Perfetto's tracks
  // hold one thing at a time, and so does the summary.
  std::vector<Held> holders_of(const Gpu& gpu) const {
    std::vector<Held> all;
    Pieces covered;
    for (const char* state : {"running", "loading", "draining"}) {
      std::vector<Held> held;
      for (const Gang& gang : model_.gangs) {
        for (const Slice& slice : gang.slices) {
          if (slice.state != state || ((slice.gpus_mask >> gpu.index) & 1) == 0) continue;
          held.push_back({slice.start_ns, slice.end_ns, &slice, &gang});
        }
      }
      lay_beneath(covered, std::move(held), all);
    }
    std::vector<Held> switches;
    for (const auto& [start, end] : switches_of(model_, gpu.index)) {
      switches.push_back({start, end, nullptr, nullptr});
    }
    lay_beneath(covered, std::move(switches), all);
    sort_by_start(all);
    return all;
  }

  static void sort_by_start(std::vector<Held>& held) {
    std::stable_sort(held.begin(), held.end(),
                     [](const Held& a, const Held& b) { return a.start_ns < b.start_ns; });
  }

  // Adds to `all` what of `held` is not covered, neither before nor by an earlier one of `held`.
  static void lay_beneath(Pieces& covered, std::vector<Held> held, std::vector<Held>& all) {
    sort_by_start(held);
    Pieces pieces;
    std::vector<const Held*> owners;
    std::int64_t last_end = INT64_MIN;
    for (const Held& one : held) {
      const std::int64_t start = std::max(one.start_ns, last_end);
      if (start >= one.end_ns) continue;
      pieces.emplace_back(start, one.end_ns);
      owners.push_back(&one);
      last_end = one.end_ns;
    }
    std::size_t owner = 0;
    for (const auto& [start, end] : subtract(pieces, covered)) {
      while (pieces[owner].second <= start) ++owner;
      all.push_back({start, end, owners[owner]->slice, owners[owner]->gang});
    }
    covered.insert(covered.end(), pieces.begin(), pieces.end());
    covered = merge(std::move(covered));
  }

  void add_held(Track track, const Held& held) {
    if (held.slice == nullptr) {
      writer_.add_slice(track, "switching", held.start_ns, held.end_ns, {{"state", "switching"}});
      return;
    }
    std::string name = label_of(held.gang->job_id);
    const std::string state = shown_name(held.slice->state);
    if (state != "running") absl::StrAppend(&name, " (", state, ")");
    writer_.add_slice(track, name, held.start_ns, held.end_ns,
                      arguments_of(*held.slice, *held.gang));
  }

  static Arguments arguments_of(const Slice& slice, const Gang& gang) {
    Arguments arguments{{"state", slice.state}, {"job", gang.job_id}};
    add_text(arguments, "epoch", epoch_text(slice.generation, slice.counter));
    add_text(arguments, "reason", slice.reason);
    return arguments;
  }

  void add_memory(const Job& job, const Gpu& gpu, Track parent) {
    const std::string& name = label_of(job.id);
    if (const auto points = memory_.find({job.id, gpu.index}); points != memory_.end()) {
      const Track resident = writer_.add_byte_counter("Resident bytes of " + name, parent);
      for (const MemoryPoint* point : points->second) {
        writer_.add_value(resident, point->at_ns, point->resident_bytes + point->unpageable_bytes);
      }
    }
  }

  // From the decision to the moment at which the newcomer could run, cut where the next one begins
  // before the last one is over.
  void add_switches(const Gpu& gpu, Track parent) {
    Track track = PerfettoWriter::kTop;
    std::int64_t last_end = INT64_MIN;
    for (const auto& [at_ns, record] : model_.swaps) {
      if (record.gpu_index() != gpu.index) continue;
      if (track == PerfettoWriter::kTop) track = writer_.add_track("Switches", parent);
      const auto decided = static_cast<std::int64_t>(record.decided_at_ns());
      const std::int64_t start = std::max(decided == 0 ? at_ns : decided, last_end);
      if (start < at_ns) {
        writer_.add_slice(track, switch_name(record), start, at_ns, arguments_of(record));
      } else {
        writer_.add_instant(track, switch_name(record), at_ns, arguments_of(record));
      }
      last_end = std::max(last_end, at_ns);
    }
  }

  std::string switch_name(const SwitchRecord& record) const {
    const auto name = [&](const std::string& id) {
      const auto label = labels_.find(id);
      return label == labels_.end() ? "-" : label->second;
    };
    return absl::StrCat(name(record.out_job_id()), " > ", name(record.in_job_id()));
  }

  static Arguments arguments_of(const SwitchRecord& record) {
    Arguments arguments;
    add_text(arguments, "reason", record.reason());
    add_text(arguments, "out_job", record.out_job_id());
    add_text(arguments, "in_job", record.in_job_id());
    const std::array<std::pair<const char*, std::uint64_t>, 12> figures = {{
        {"needed_bytes", record.needed_bytes()},
        {"out_bytes", record.out_bytes()},
        {"in_bytes", record.in_bytes()},
        {"out_disk_bytes", record.out_disk_bytes()},
        {"in_disk_bytes", record.in_disk_bytes()},
        {"untouched_bytes", record.untouched_bytes()},
        {"repeated_bytes", record.repeated_bytes()},
        {"unchanged_bytes", record.unchanged_bytes()},
        {"shared_bytes", record.shared_bytes()},
        {"drain_ns", record.drain_ns()},
        {"evict_ns", record.evict_ns()},
        {"load_ns", record.load_ns()},
    }};
    for (const auto& [name, value] : figures) arguments.push_back({name, "", value});
    return arguments;
  }

  void add_job(const Job& job) {
    std::set<std::uint64_t> ids;
    for (const Gang* gang : model_.gangs_of(job.id)) {
      const Track track = add_gang_track(job, gang->id);
      for (const Slice& slice : gang->slices) {
        if (const char* name = shown_name(slice.state)) {
          writer_.add_slice(track, name, slice.start_ns, slice.end_ns, arguments_of(slice, *gang));
        }
      }
      add_gaps(*gang, track);
      add_moved(job, gang->id, track);
      ids.insert(gang->id);
    }
    // Gangs that moved bytes without a state in this trace: it begins in the middle, or was cut.
    for (const auto& [key, moved] : moved_) {
      if (key.first == job.id && ids.count(key.second) == 0) {
        add_moved(job, key.second, add_gang_track(job, key.second));
      }
    }
  }

  Track add_gang_track(const Job& job, std::uint64_t id) {
    return writer_.add_track(
        absl::StrCat(label_of(job.id), " gang ", id, model_.simulated ? " (simulated)" : ""));
  }

  void add_moved(const Job& job, std::uint64_t gang, Track parent) {
    if (const auto found = moved_.find({job.id, gang}); found != moved_.end()) {
      add_total("Bytes copied out", parent, job.start_ns, found->second.out);
      add_total("Bytes copied in", parent, job.start_ns, found->second.in);
    }
    for (const Process& process : model_.processes) {
      if (process.job_id == job.id && process.gang == gang) add_paging(process, parent);
    }
  }

  // How much was copied so far.
  void add_total(const std::string& name, Track parent, std::int64_t start_ns,
                 std::vector<Moved> moved) {
    if (moved.empty()) return;
    std::stable_sort(moved.begin(), moved.end(),
                     [](const Moved& a, const Moved& b) { return a.at_ns < b.at_ns; });
    const Track counter = writer_.add_byte_counter(name, parent);
    writer_.add_value(counter, std::min(start_ns, moved.front().at_ns), 0);
    std::uint64_t total = 0;
    for (const auto& [at_ns, bytes] : moved) writer_.add_value(counter, at_ns, total += bytes);
  }

  // What one process moved. One thread of it moves, so its windows follow each other; where the end
  // of one is not known, the next one's begin is as late as it can be.
  void add_paging(const Process& process, Track parent) {
    std::vector<const PagingRecord*> moves;
    for (const auto& [at_ns, record] : model_.paging) {
      if (record.session() == process.session) moves.push_back(&record);
    }
    if (moves.empty()) return;
    std::stable_sort(moves.begin(), moves.end(), [](const PagingRecord* a, const PagingRecord* b) {
      return a->start_ns() < b->start_ns();
    });
    const Track track = writer_.add_track(absl::StrCat("Moves of pid ", process.pid), parent);
    for (std::size_t i = 0; i < moves.size(); ++i) {
      const PagingRecord& move = *moves[i];
      auto end = static_cast<std::int64_t>(move.end_ns() == 0 ? UINT64_MAX >> 1 : move.end_ns());
      end = std::min(end, process.end_ns);
      if (i + 1 < moves.size()) {
        end = std::min(end, static_cast<std::int64_t>(moves[i + 1]->start_ns()));
      }
      const auto start = static_cast<std::int64_t>(move.start_ns());
      if (end <= start) continue;
      Arguments arguments;
      add_text(arguments, "epoch", epoch_text(move.epoch().generation(), move.epoch().counter()));
      add_text(arguments, "outcome", move.outcome());
      arguments.push_back({"bytes", "", move.out_bytes() + move.in_bytes()});
      writer_.add_slice(track, paging_name(move), start, end, arguments);
    }
  }

  void add_gaps(const Gang& gang, Track parent) {
    Track track = PerfettoWriter::kTop;
    std::int64_t last_end = INT64_MIN;
    for (const Gap& gap : model_.gaps) {
      if (gap.job_id != gang.job_id || gap.gang != gang.id) continue;
      const std::int64_t start = std::max(gap.start_ns, last_end);
      if (start >= gap.end_ns) continue;
      if (track == PerfettoWriter::kTop) track = writer_.add_track("Gaps", parent);
      std::string name = gap.cause.empty() ? "gap" : gap.cause;
      if (gap.lent) name += ", GPU lent";
      writer_.add_slice(track, name, start, gap.end_ns, {{"job", gang.job_id}});
      last_end = gap.end_ns;
    }
  }

  void add_problems() {
    if (model_.problems.empty()) return;
    const Track track = writer_.add_track("Problems");
    for (const Problem& problem : model_.problems) {
      Arguments arguments;
      add_text(arguments, "job", problem.record.job_id());
      add_text(arguments, "text", problem.record.text());
      writer_.add_instant(track, problem.record.what(), problem.at_ns, arguments);
    }
  }

  const Model& model_;
  PerfettoWriter writer_;
  std::map<std::string, std::string> labels_;  ///< of jobs, by id
  std::map<std::pair<std::string, std::uint32_t>, std::vector<const MemoryPoint*>> memory_;
  std::map<std::pair<std::string, std::uint64_t>, MovedOfGang> moved_;  ///< by job and gang
};

}  // namespace

std::string export_perfetto(const Model& model) { return Exporter(model).run(); }

}  // namespace plexrl::trace
