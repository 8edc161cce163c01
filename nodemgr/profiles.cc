#include "nodemgr/profiles.h"

#include <unistd.h>

#include <bit>
#include <cctype>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "nodemgr/gaps_json.h"
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

/// The file's object; an empty one where there is none that can be read.
Json read(const std::string& path) {
  std::ifstream file(path);
  Json profile = file ? Json::parse(file, nullptr, false) : Json();
  return profile.is_object() ? profile : Json::object();
}

absl::Status write(const std::string& path, const Json& profile) {
  const std::string fresh = path + ".new";
  std::error_code error;
  std::filesystem::create_directories(std::filesystem::path(path).parent_path(), error);
  if (error) return failed(path, ": ", error.message());
  std::ofstream file(fresh);
  file << profile.dump(1, ' ', false, Json::error_handler_t::replace) << "\n";
  file.close();
  if (!file) {
    std::filesystem::remove(fresh, error);
    return failed(fresh, ": can't be written");
  }
  std::filesystem::rename(fresh, path, error);
  return error ? failed(path, ": ", error.message()) : absl::OkStatus();
}

std::uint64_t overhead_in(const Json& profile) {
  auto bytes = profile.find("overhead_bytes");
  if (bytes == profile.end() || !bytes->is_number_unsigned()) return 0;
  const auto known = bytes->get<std::uint64_t>();
  return known <= kMost ? known : 0;
}

GangGaps gaps_in(const Json& profile) {
  auto gangs = profile.find("gangs");
  return gangs == profile.end() ? GangGaps{} : gaps_from(*gangs);
}

Json made(const std::string& name, std::uint64_t overhead, const GangGaps& gaps) {
  Json profile;
  profile["schema"] = kSchema;
  profile["name"] = name;
  profile["overhead_bytes"] = overhead;
  profile["gangs"] = gaps_json(gaps);
  return profile;
}

}  // namespace

const policy::GapProfile* find_gaps(const GangGaps& gaps, std::uint64_t gpus) {
  if (auto exact = gaps.find(gpus); exact != gaps.end()) return &exact->second;
  const policy::GapProfile* found = nullptr;
  for (const auto& [others, profile] : gaps) {
    if (std::popcount(others) != std::popcount(gpus)) continue;
    if (found != nullptr) return nullptr;
    found = &profile;
  }
  return found;
}

std::string Profiles::path(uid_t uid, const std::string& name) const {
  return cat(folder_, "/", uid, "/", file_name(name));
}

Profiles::Known Profiles::known(uid_t uid, const std::string& name) const {
  const Json profile = read(path(uid, name));
  const std::uint64_t bytes = overhead_in(profile);
  Known known;
  known.overhead = bytes == 0 ? 0 : (bytes + bytes / 8 + kRound - 1) / kRound * kRound;
  for (const auto& [gpus, gaps] : gaps_in(profile)) known.gaps[gpus] = gaps.remembered();
  return known;
}

absl::Status Profiles::learn(uid_t uid, const std::string& name, std::uint64_t seen) {
  const std::string to = path(uid, name);
  const Json profile = read(to);
  const std::uint64_t before = overhead_in(profile);
  const std::uint64_t now = seen < before ? before - (before - seen) / 4 : std::min(seen, kMost);
  if (now == before) return absl::OkStatus();
  return write(to, made(name, now, gaps_in(profile)));
}

absl::Status Profiles::learn(uid_t uid, const std::string& name, const GangGaps& gaps) {
  const std::string to = path(uid, name);
  const Json profile = read(to);
  GangGaps all = gaps_in(profile);
  for (const auto& [gpus, shown] : gaps) all[gpus] = shown;
  return write(to, made(name, overhead_in(profile), all));
}

}  // namespace plexrl::nodemgr
