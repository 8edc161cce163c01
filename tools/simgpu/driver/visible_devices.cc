#include "tools/simgpu/driver/visible_devices.h"

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <string>
#include <string_view>

namespace plexrl::simgpu {
namespace {

int find_device(const Machine& machine, const std::string& item) {
  const int count = machine.spec().gpus;
  if (item.rfind("GPU-", 0) == 0) {
    int found = -1;
    for (int i = 0; i < count; ++i) {
      if (uuid_text(machine.uuid(i)).rfind(item, 0) != 0) continue;
      if (found >= 0) return -1;
      found = i;
    }
    return found;
  }
  if (item.empty() ||
      !std::all_of(item.begin(), item.end(), [](unsigned char c) { return std::isdigit(c); }))
    return -1;
  const int index = std::atoi(item.c_str());
  return index < count ? index : -1;
}

}  // namespace

std::vector<int> visible_devices(const Machine& machine, const char* variable) {
  std::vector<int> result;
  if (variable == nullptr) {
    for (int i = 0; i < machine.spec().gpus; ++i) result.push_back(i);
    return result;
  }
  std::string_view rest = variable;
  while (!rest.empty()) {
    const std::size_t comma = std::min(rest.find(','), rest.size());
    std::string item(rest.substr(0, comma));
    item.erase(std::remove(item.begin(), item.end(), ' '), item.end());
    rest.remove_prefix(std::min(comma + 1, rest.size()));
    const int device = find_device(machine, item);
    if (device < 0 || std::find(result.begin(), result.end(), device) != result.end()) break;
    result.push_back(device);
  }
  return result;
}

}  // namespace plexrl::simgpu
