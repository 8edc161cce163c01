// A line of plexrl-observer: read, with texts of one printable line each, or refused with a reason.

#include <cstdint>
#include <cstdlib>
#include <string>
#include <variant>

#include "nodemgr/observer_report.h"

namespace {

void check(const std::string& text) {
  if (text.size() > 128) std::abort();
  for (const char c : text) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) std::abort();
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace plexrl::nodemgr;
  const auto line = parse_observer_line(std::string(reinterpret_cast<const char*>(data), size));
  if (!line.ok()) {
    if (line.status().message().empty()) std::abort();
    return 0;
  }
  if (const auto* causes = std::get_if<ObserverCauses>(&*line)) {
    for (const GapCause& cause : causes->causes) {
      if (cause.cause.empty() || cause.time.count() < 0) std::abort();
      check(cause.cause);
      check(cause.detail);
    }
    main_cause(causes->causes);
  } else if (const auto* openers = std::get_if<ObserverOpeners>(&*line)) {
    for (const auto& process : openers->processes) {
      check(process.command);
      for (const std::string& file : process.files) check(file);
    }
  } else if (const auto* hello = std::get_if<ObserverHello>(&*line)) {
    for (const std::string& lack : hello->lacks) check(lack);
  }
  return 0;
}
