#include "shim/memory_report.h"

#include <algorithm>
#include <cstdio>
#include <cstring>

namespace plexrl::shim {
namespace {

constexpr std::uint64_t kShortestGapNs = 100'000'000;

/// "one; another", as much as there is room for.
template <std::size_t kBytes>
void write_reasons(const std::vector<const char*>& reasons, char (&out)[kBytes]) {
  std::size_t used = 0;
  for (const char* const reason : reasons) {
    const int wrote =
        std::snprintf(out + used, kBytes - used, "%s%s", used == 0 ? "" : "; ", reason);
    used = std::min(used + static_cast<std::size_t>(std::max(wrote, 0)), kBytes - 1);
  }
}

}  // namespace

wire::MemoryReport MemoryReporter::compose(const Devices::Attached& attached) const {
  const RangeTable::Totals totals = ranges_.totals(attached.device);
  wire::MemoryReport report{};
  report.gpu = attached.gpu;
  // A chunk on its way takes HBM already or still; a pinned one is the driver's kind of taken.
  report.resident_bytes = totals.resident + totals.moving - totals.pinned;
  report.host_bytes = totals.host;
  report.unbacked_bytes = totals.unbacked;
  unpageable_.sums(attached.device, report.kind_bytes);
  report.kind_bytes[static_cast<int>(wire::MemoryKind::kAlloc)] +=
      report.resident_bytes + totals.host + totals.disk + totals.unbacked;
  return report;
}

wire::Kinds MemoryReporter::compose_kinds(const Devices::Attached& attached) const {
  wire::Kinds kinds{};
  kinds.gpu = attached.gpu;
  bool is_pinned = false;
  const auto all = ranges_.shown_totals(attached.device);
  for (std::size_t kind = 0; kind < all.size(); ++kind) {
    const RangeTable::Totals& totals = all[kind];
    kinds.kinds[kind] = {totals.resident + totals.moving, totals.host, totals.unbacked,
                         totals.pinned};
    is_pinned = is_pinned || totals.pinned != 0;
  }
  if (is_pinned) write_reasons(ranges_.pin_reasons(attached.device), kinds.pinned_reason);
  return kinds;
}

wire::DiskReport MemoryReporter::compose_disk(const Devices::Attached& attached) const {
  wire::DiskReport report{};
  report.gpu = attached.gpu;
  const auto all = ranges_.shown_totals(attached.device);
  for (std::size_t kind = 0; kind < all.size(); ++kind) report.kind_bytes[kind] = all[kind].disk;
  return report;
}

std::uint64_t MemoryReporter::step(std::uint64_t now_ns) {
  std::uint64_t due = ~std::uint64_t{0};
  for (const Devices::Attached& attached : devices_.all()) {
    const wire::MemoryReport report = compose(attached);
    const wire::Kinds kinds = compose_kinds(attached);
    const wire::DiskReport disk = compose_disk(attached);
    const auto it = sent_.find(attached.device);
    if (it != sent_.end()) {
      if (std::memcmp(&it->second.report, &report, sizeof report) == 0 &&
          std::memcmp(&it->second.kinds, &kinds, sizeof kinds) == 0 &&
          std::memcmp(&it->second.disk, &disk, sizeof disk) == 0) {
        continue;
      }
      const std::uint64_t since = now_ns - it->second.at_ns;
      if (since < kShortestGapNs) {
        due = std::min(due, kShortestGapNs - since);
        continue;
      }
    }
    const bool has_disk = (client_.welcome().features & wire::kFeatureDisk) != 0;
    if (has_disk) client_.connection().send(wire::Type::kDiskReport, disk);
    if (client_.connection().send(wire::Type::kMemoryReport, report) &&
        client_.connection().send(wire::Type::kKinds, kinds)) {
      sent_[attached.device] = {report, kinds, disk, now_ns};
    }
  }
  return due;
}

}  // namespace plexrl::shim
