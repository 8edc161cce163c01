#include "nodemgr/profiles.h"

#include <unistd.h>

#include <cctype>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "nodemgr/settings/cat.h"

namespace plexrl::nodemgr {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kSchema = 1;
constexpr std::uint64_t kRound = 2 << 20;
constexpr std::uint64_t kMost = std::uint64_t{1} << 40;  // more is no overhead but damage

/// A job's name as that of a file: what is no letter, digit, '-' or '_' becomes %XX.
std::string file_name(const std::string& name) {
  std::string text;
  for (char c : name) {
    auto byte = static_cast<unsigned char>(c);
    if (std::isalnum(byte) != 0 || c == '-' || c == '_') {
      text += c;
    } else {
      char code[4];
      std::snprintf(code, sizeof code, "%%%02X", byte);
      text += code;
    }
  }
  return text + ".json";
}

}  // namespace

std::string Profiles::path(uid_t uid, const std::string& name) const {
  return cat(folder_, "/", uid, "/", file_name(name));
}

std::uint64_t Profiles::known(uid_t uid, const std::string& name) const {
  std::ifstream file(path(uid, name));
  if (!file) return 0;
  Json profile = Json::parse(file, nullptr, false);
  if (!profile.is_object()) return 0;
  auto bytes = profile.find("overhead_bytes");
  if (bytes == profile.end() || !bytes->is_number_unsigned()) return 0;
  auto known = bytes->get<std::uint64_t>();
  return known <= kMost ? known : 0;
}

std::uint64_t Profiles::overhead(uid_t uid, const std::string& name) const {
  std::uint64_t bytes = known(uid, name);
  return bytes == 0 ? 0 : (bytes + bytes / 8 + kRound - 1) / kRound * kRound;
}

absl::Status Profiles::learn(uid_t uid, const std::string& name, std::uint64_t seen) {
  std::uint64_t before = known(uid, name);
  std::uint64_t now = seen < before ? before - (before - seen) / 4 : std::min(seen, kMost);
  if (now == before) return absl::OkStatus();
  std::string to = path(uid, name);
  std::string fresh = to + ".new";
  std::error_code error;
  std::filesystem::create_directories(std::filesystem::path(to).parent_path(), error);
  if (error) return failed(to, ": ", error.message());
  Json profile;
  profile["schema"] = kSchema;
  profile["name"] = name;
  profile["overhead_bytes"] = now;
  std::ofstream file(fresh);
  file << profile.dump(2, ' ', false, Json::error_handler_t::replace) << "\n";
  file.close();
  if (!file) {
    std::filesystem::remove(fresh, error);
    return failed(fresh, ": can't be written");
  }
  std::filesystem::rename(fresh, to, error);
  return error ? failed(to, ": ", error.message()) : absl::OkStatus();
}

}  // namespace plexrl::nodemgr
