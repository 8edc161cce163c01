#include "tools/run/job_env.h"

#include <algorithm>

namespace plexrl::run {
namespace {

constexpr char kLibrary[] = "libplexrl.so";

bool is_ours(const std::string& file) { return file.substr(file.rfind('/') + 1) == kLibrary; }

std::vector<std::string> split(const char* text, const std::string& separators) {
  std::vector<std::string> parts;
  const std::string all = text ? text : "";
  for (size_t begin = 0; begin < all.size();) {
    const size_t end = std::min(all.find_first_of(separators, begin), all.size());
    if (end > begin) parts.push_back(all.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

void set_list(EnvBlock& env, const std::string& name, const std::vector<std::string>& parts) {
  std::string joined;
  for (const std::string& part : parts) joined += (joined.empty() ? "" : ":") + part;
  if (joined.empty()) {
    env.unset(name);
  } else {
    env.set(name, joined);
  }
}

// LD_PRELOAD is separated by spaces or colons (ld.so(8)).
std::vector<std::string> other_preloads(const EnvBlock& env) {
  auto files = split(env.get("LD_PRELOAD"), " :");
  std::erase_if(files, is_ours);
  return files;
}

}  // namespace

EnvBlock::EnvBlock(const char* const* block) {
  for (; block && *block; ++block) entries_.emplace_back(*block);
}

const char* EnvBlock::get(const std::string& name) const {
  for (const std::string& entry : entries_) {
    if (entry.size() > name.size() && entry[name.size()] == '=' &&
        entry.compare(0, name.size(), name) == 0) {
      return entry.c_str() + name.size() + 1;
    }
  }
  return nullptr;
}

void EnvBlock::set(const std::string& name, const std::string& value) {
  unset(name);
  entries_.push_back(name + "=" + value);
}

void EnvBlock::unset(const std::string& name) {
  std::erase_if(entries_,
                [&](const std::string& entry) { return entry.rfind(name + "=", 0) == 0; });
}

std::vector<char*> EnvBlock::pointers() {
  std::vector<char*> pointers;
  for (std::string& entry : entries_) pointers.push_back(entry.data());
  pointers.push_back(nullptr);
  return pointers;
}

void preload(EnvBlock& env, const std::string& library) {
  auto files = other_preloads(env);
  files.insert(files.begin(), library);
  set_list(env, "LD_PRELOAD", files);
}

void leave_job(EnvBlock& env) {
  set_list(env, "LD_PRELOAD", other_preloads(env));
  for (const char* name : {"PLEXRL_JOB_ID", "PLEXRL_JOB_NAME", "PLEXRL_JOB_SECRET"}) {
    env.unset(name);
  }
}

void search_first(EnvBlock& env, const std::string& folder) {
  auto folders = split(env.get("LD_LIBRARY_PATH"), ":;");
  std::erase(folders, folder);
  folders.insert(folders.begin(), folder);
  set_list(env, "LD_LIBRARY_PATH", folders);
}

}  // namespace plexrl::run
