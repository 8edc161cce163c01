#include "tools/trace/model.h"

#include <algorithm>

#include "tools/cli/format.h"
#include "tools/trace/model_builder.h"

namespace plexrl::trace {

std::vector<CauseTime> causes_of(const Gap& gap) {
  double told = 0;
  for (const CauseTime& one : gap.causes) told += static_cast<double>(one.time_ns);
  if (told <= 0 || gap.length_ns() <= 0)
    return {{gap.cause.empty() ? "unknown" : gap.cause, "", gap.length_ns()}};
  const double scale = static_cast<double>(gap.length_ns()) / told;
  std::vector<CauseTime> causes = gap.causes;
  std::int64_t left = gap.length_ns();
  for (CauseTime& one : causes) {
    one.time_ns = static_cast<std::int64_t>(static_cast<double>(one.time_ns) * scale);
    one.time_ns = std::clamp<std::int64_t>(one.time_ns, 0, left);
    left -= one.time_ns;
  }
  causes.front().time_ns += left;  // what rounding has lost
  std::erase_if(causes, [](const CauseTime& one) { return one.time_ns == 0; });
  return causes;
}

Model build_model(const RawTrace& trace) {
  ModelBuilder builder;
  for (const TraceRecord& record : trace.records) builder.take(record);
  return builder.finish();
}

const Job* Model::find_job(const std::string& id) const {
  const auto found =
      std::find_if(jobs.begin(), jobs.end(), [&](const Job& job) { return job.id == id; });
  return found == jobs.end() ? nullptr : &*found;
}

std::string Model::job_name(const std::string& id) const {
  const Job* job = find_job(id);
  return job && !job->name.empty() ? job->name : id.substr(0, 8);
}

std::vector<const Gang*> Model::gangs_of(const std::string& job_id) const {
  std::vector<const Gang*> found;
  for (const Gang& gang : gangs) {
    if (gang.job_id == job_id) found.push_back(&gang);
  }
  return found;
}

std::optional<std::string> Model::wall_time(std::int64_t at_ns) const {
  if (!realtime_at_0) return std::nullopt;
  return cli::format_rfc3339(*realtime_at_0 + at_ns);
}

Pieces merge(Pieces pieces) {
  std::sort(pieces.begin(), pieces.end());
  Pieces merged;
  for (const auto& piece : pieces) {
    if (piece.first >= piece.second) continue;
    if (!merged.empty() && piece.first <= merged.back().second) {
      merged.back().second = std::max(merged.back().second, piece.second);
    } else {
      merged.push_back(piece);
    }
  }
  return merged;
}

Pieces subtract(const Pieces& from, const Pieces& what) {
  Pieces left;
  auto cut = what.begin();
  for (auto [begin, end] : from) {
    while (cut != what.end() && cut->second <= begin) ++cut;
    for (auto next = cut; next != what.end() && next->first < end; ++next) {
      if (next->first > begin) left.emplace_back(begin, next->first);
      begin = std::max(begin, next->second);
    }
    if (begin < end) left.emplace_back(begin, end);
  }
  return left;
}

Pieces common(const Pieces& a, const Pieces& b) { return subtract(a, subtract(a, b)); }

std::int64_t total_ns(const Pieces& pieces) {
  std::int64_t total = 0;
  for (const auto& [begin, end] : pieces) total += end - begin;
  return total;
}

}  // namespace plexrl::trace
