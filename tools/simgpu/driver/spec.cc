#include "tools/simgpu/driver/spec.h"

#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstdlib>
#include <functional>
#include <utility>
#include <vector>

namespace plexrl::simgpu {
namespace {

struct Suffix {
  std::string_view text;
  double factor;
};

constexpr Suffix kSizes[] = {
    {"KiB", 1024.0}, {"MiB", 1048576.0}, {"GiB", 1073741824.0}, {"TiB", 1099511627776.0},
    {"KB", 1e3},     {"MB", 1e6},        {"GB", 1e9},           {"B", 1.0},
    {"", 1.0}};
constexpr Suffix kRates[] = {
    {"GiB/s", 1073741824.0}, {"MiB/s", 1048576.0}, {"GB/s", 1e9}, {"MB/s", 1e6},
    {"KB/s", 1e3},           {"B/s", 1.0},         {"", 1.0}};
constexpr Suffix kTimes[] = {{"ns", 1.0}, {"us", 1e3}, {"ms", 1e6}, {"s", 1e9}, {"", 1.0}};

template <std::size_t N>
bool parse_scaled(const std::string& text, const Suffix (&suffixes)[N], double* value) {
  char* end = nullptr;
  const double number = std::strtod(text.c_str(), &end);
  if (end == text.c_str() || !std::isfinite(number) || number < 0) return false;
  const std::string_view rest = end;
  for (const Suffix& suffix : suffixes) {
    if (rest == suffix.text) {
      *value = number * suffix.factor;
      return *value < 1.8e19;
    }
  }
  return false;
}

using Setter = std::function<bool(const std::string&, Spec*)>;

struct Key {
  std::string_view name;
  std::string_view form;
  Setter set;
};

template <std::size_t N>
Setter scaled(std::uint64_t Spec::*field, const Suffix (&suffixes)[N]) {
  return [field, &suffixes](const std::string& text, Spec* spec) {
    double value = 0;
    if (!parse_scaled(text, suffixes, &value)) return false;
    spec->*field = static_cast<std::uint64_t>(value);
    return true;
  };
}

Setter integer(int Spec::*field, int lowest, int highest) {
  return [=](const std::string& text, Spec* spec) {
    char* end = nullptr;
    const long value = std::strtol(text.c_str(), &end, 10);
    if (text.empty() || *end != 0 || value < lowest || value > highest) return false;
    spec->*field = static_cast<int>(value);
    return true;
  };
}

Setter number(std::uint64_t Spec::*field) {
  return [=](const std::string& text, Spec* spec) {
    char* end = nullptr;
    const unsigned long long value = std::strtoull(text.c_str(), &end, 10);
    if (text.empty() || *end != 0 || text[0] == '-') return false;
    spec->*field = value;
    return true;
  };
}

Setter real(double Spec::*field, double lowest, double highest) {
  return [=](const std::string& text, Spec* spec) {
    char* end = nullptr;
    const double value = std::strtod(text.c_str(), &end);
    if (text.empty() || *end != 0 || !(value >= lowest && value <= highest)) return false;
    spec->*field = value;
    return true;
  };
}

bool set_name(const std::string& text, Spec* spec) {
  const bool plain = std::all_of(text.begin(), text.end(), [](unsigned char c) {
    return std::isalnum(c) || c == '-' || c == '_' || c == '.';
  });
  if (text.empty() || text.size() > 64 || !plain || text[0] == '.') return false;
  spec->name = text;
  return true;
}

bool set_failure(const std::string& text, Spec* spec) {
  const std::size_t at = text.find('@');
  const std::size_t colon = text.find(':', at == std::string::npos ? 0 : at);
  if (at == std::string::npos || colon == std::string::npos || at == 0) return false;
  spec->failure.call = text.substr(0, at);
  spec->failure.nth = std::strtoull(text.substr(at + 1, colon - at - 1).c_str(), nullptr, 10);
  spec->failure.code = std::atoi(text.substr(colon + 1).c_str());
  return spec->failure.nth > 0 && spec->failure.code > 0;
}

const std::vector<Key>& keys() {
  static const auto* all = new std::vector<Key>{
      {"name", "letters, digits, '-', '_', '.'", set_name},
      {"gpus", "1..16", integer(&Spec::gpus, 1, 16)},
      {"memory", "a size such as 1GiB",
       [](const std::string& text, Spec* spec) {
         double value = 0;
         if (!parse_scaled(text, kSizes, &value) || value < 64.0 * 1048576 ||
             value > 64.0 * 1073741824)
           return false;
         spec->memory_bytes =
             (static_cast<std::uint64_t>(value) + (2u << 20) - 1) & ~((2ull << 20) - 1);
         return true;
       }},
      {"link", "a rate such as 1GB/s, 0 for no cost", scaled(&Spec::link_bytes_per_s, kRates)},
      {"duplex", "0.1..1", real(&Spec::duplex, 0.1, 1.0)},
      {"hbm", "a rate such as 8GB/s, 0 for no cost", scaled(&Spec::hbm_bytes_per_s, kRates)},
      {"sms", "1..256", integer(&Spec::sms, 1, 256)},
      {"sm", "75, 80 or 90",
       [](const std::string& text, Spec* spec) {
         if (text != "75" && text != "80" && text != "90") return false;
         spec->sm = std::atoi(text.c_str());
         return true;
       }},
      {"ctx", "a size such as 16MiB", scaled(&Spec::context_bytes, kSizes)},
      {"vmm", "a time such as 193us, 0 for no cost", scaled(&Spec::vmm_ns, kTimes)},
      {"free_delay", "a time such as 20ms", scaled(&Spec::free_delay_ns, kTimes)},
      {"queue", "a number of at least 2",
       [](const std::string& text, Spec* spec) {
         return number(&Spec::queue_depth)(text, spec) && spec->queue_depth >= 2;
       }},
      {"order", "fixed",
       [](const std::string& text, Spec* spec) { return spec->fixed_order = text == "fixed"; }},
      {"log", "a file",
       [](const std::string& text, Spec* spec) {
         spec->log_path = text;
         return !text.empty();
       }},
      {"seed", "a number", number(&Spec::seed)},
      {"stagger", "a time such as 5ms", scaled(&Spec::stagger_ns, kTimes)},
      {"fail", "CALL@N:CODE, as in cuMemCreate@3:2", set_failure},
      {"hang", "the number of a kernel, from 1", number(&Spec::hang_kernel)},
      {"slow", "0.01..1000", real(&Spec::slow, 0.01, 1000)},
  };
  return *all;
}

std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = std::exchange(row[0], i);
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t change = diagonal + (a[i - 1] != b[j - 1]);
      diagonal = std::exchange(row[j], std::min({row[j] + 1, row[j - 1] + 1, change}));
    }
  }
  return row[b.size()];
}

}  // namespace

std::string Spec::device_part() const {
  return "gpus=" + std::to_string(gpus) + ",memory=" + std::to_string(memory_bytes) +
         ",link=" + std::to_string(link_bytes_per_s) + ",duplex=" + std::to_string(duplex) +
         ",hbm=" + std::to_string(hbm_bytes_per_s) + ",sms=" + std::to_string(sms) +
         ",sm=" + std::to_string(sm) + ",ctx=" + std::to_string(context_bytes) +
         ",vmm=" + std::to_string(vmm_ns) + ",free_delay=" + std::to_string(free_delay_ns) +
         ",queue=" + std::to_string(queue_depth);
}

bool parse_spec(std::string_view text, Spec* spec, std::string* error) {
  Spec result;
  while (!text.empty()) {
    const std::size_t comma = std::min(text.find(','), text.size());
    const std::string_view item = text.substr(0, comma);
    text.remove_prefix(std::min(comma + 1, text.size()));
    if (item.empty()) continue;
    const std::size_t equals = std::min(item.find('='), item.size());
    const std::string_view name = item.substr(0, equals);
    const std::string value(item.substr(std::min(equals + 1, item.size())));
    const auto key =
        std::find_if(keys().begin(), keys().end(), [&](const Key& k) { return k.name == name; });
    if (key == keys().end()) {
      const auto nearest =
          std::min_element(keys().begin(), keys().end(), [&](const Key& a, const Key& b) {
            return edit_distance(a.name, name) < edit_distance(b.name, name);
          });
      // A key that shares less than half of the letters is no help; the list is.
      *error = "PLEXRL_SIMGPU: unknown key '" + std::string(name) + "': ";
      if (2 * edit_distance(nearest->name, name) <= name.size()) {
        *error += "did you mean '" + std::string(nearest->name) + "'?";
      } else {
        *error += "the keys are";
        for (const Key& known : keys()) error->append(" ").append(known.name);
      }
      return false;
    }
    if (!key->set(value, &result)) {
      *error = "PLEXRL_SIMGPU: " + std::string(name) + "='" + value + "' is not possible: give " +
               std::string(key->form);
      return false;
    }
  }
  *spec = std::move(result);
  return true;
}

std::string state_folder(const Spec& spec) {
  const char* runtime = std::getenv("XDG_RUNTIME_DIR");
  if (runtime != nullptr && *runtime == '/')
    return std::string(runtime) + "/plexrl-simgpu/" + spec.name;
  return "/tmp/plexrl-" + std::to_string(getuid()) + "/simgpu/" + spec.name;
}

}  // namespace plexrl::simgpu
