// Whole files, read and written with errors that name them. For small files; weights are mapped (checkpoint/).
//
// Called at start-up and by commands. Pure functions, thread-safe.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace sluice {

struct ReadFile {
  std::string_view what;             // "a JSON file", for messages
  std::size_t most_bytes = 1 << 30;  // of the file
  bool regular = true;               // refuse pipes and devices, which may never end
};

// Throws Error(bad_input) when the file is missing, a folder, not regular, too long or unreadable.
std::string read_file(const std::string& path, const ReadFile& how);

// Replaces the file in one step, so that a reader sees the old or the new text. A symbolic link stays one; a pipe or a
// device is written as it is. Throws Error(resources).
void write_file(const std::string& path, std::string_view text);

// Throws Error(resources) when write_file could not write there: a folder, a missing one, no permission. For outputs of
// long work, before it begins.
void check_writable(const std::string& path);

// Where a file that is to replace `path` has to go: where a symbolic link leads, else `path`. Throws Error(resources)
// when a folder, a pipe or a device is there.
std::string replaceable_target(const std::string& path);

}  // namespace sluice
