#include "nodemgr/settings/toml_read.h"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <memory>

#include "nodemgr/settings/cat.h"
#include "nodemgr/settings/nearest.h"

namespace plexrl::nodemgr::settings {

namespace {

absl::StatusOr<std::string> read_all(const std::string& path) {
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path.c_str(), "re"),
                                                             &std::fclose);
  if (file == nullptr) return invalid(path, ": can't be read: ", std::strerror(errno));
  std::string text;
  char part[4096];
  while (const std::size_t got = std::fread(part, 1, sizeof part, file.get())) {
    text.append(part, got);
  }
  if (std::ferror(file.get()) != 0) return invalid(path, ": can't be read: ", std::strerror(errno));
  return text;
}

}  // namespace

absl::StatusOr<toml::table> read_toml(const std::string& path) {
  std::error_code error;
  if (!std::filesystem::exists(path, error)) {
    return absl::NotFoundError(cat(path, ": ", error ? error.message() : "no such file"));
  }
  if (std::filesystem::is_directory(path, error)) return invalid(path, ": is a folder, not a file");
  absl::StatusOr<std::string> text = read_all(path);
  if (!text.ok()) return text.status();
  try {
    return toml::parse(*text, path);
  } catch (const toml::parse_error& failure) {
    const std::uint32_t line = failure.source().begin.line;
    return invalid(path, line > 0 ? cat(":", line) : "", ": ", failure.description());
  }
}

std::string place_of(const std::string& path, const toml::node& node) {
  const std::uint32_t line = node.source().begin.line;
  return line > 0 ? cat(path, ":", line) : path;
}

absl::Status unknown_name(std::string_view kind, std::string_view name, const std::string& place,
                          const std::vector<std::string>& known) {
  const std::string nearest = nearest_name(name, known);
  return invalid(place, ": unknown ", kind, " '", name, "'",
                 nearest.empty() ? "" : cat(", did you mean '", nearest, "'?"));
}

}  // namespace plexrl::nodemgr::settings
