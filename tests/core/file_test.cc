#include "core/file.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <functional>
#include <iterator>
#include <string>

#include "core/error.h"

namespace sluice {
namespace {

namespace fs = std::filesystem;

class FileTest : public ::testing::Test {
 protected:
  FileTest() : folder_(fs::temp_directory_path() / ("sluice_file_test_" + std::to_string(getpid()))) {
    fs::remove_all(folder_);  // of a process that was killed, whose number came again
    fs::create_directories(folder_);
  }
  ~FileTest() override { fs::remove_all(folder_); }

  std::string path(const std::string& name) const { return (folder_ / name).string(); }
  std::size_t entries() const { return std::distance(fs::directory_iterator(folder_), fs::directory_iterator()); }
  static bool is_fifo(const std::string& p) {
    struct stat info = {};
    return lstat(p.c_str(), &info) == 0 && S_ISFIFO(info.st_mode);
  }

  fs::path folder_;
};

ErrorCode code_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& e) {
    return e.code();
  }
  return ErrorCode{};
}

TEST_F(FileTest, WhatWasWrittenIsRead) {
  std::string text(300'000, 'x');
  text[7] = '\0';
  write_file(path("a"), text);
  EXPECT_EQ(read_file(path("a"), {"a text"}), text);
  write_file(path("a"), "short");
  EXPECT_EQ(read_file(path("a"), {"a text"}), "short");
  EXPECT_EQ(entries(), 1u) << "a temporary file was left behind";
}

TEST_F(FileTest, ASymbolicLinkStaysOneAndOtherFilesStayWhole) {
  write_file(path("target"), "old");
  write_file(path("link.part"), "mine");
  fs::create_symlink(path("target"), path("link"));
  write_file(path("link"), "new");
  EXPECT_TRUE(fs::is_symlink(path("link")));
  EXPECT_EQ(read_file(path("target"), {"a text"}), "new");
  EXPECT_EQ(read_file(path("link.part"), {"a text"}), "mine");
}

TEST_F(FileTest, ThePermissionsOfAReplacedFileStay) {
  write_file(path("a"), "old");
  fs::permissions(path("a"), fs::perms::owner_read | fs::perms::owner_write);
  write_file(path("a"), "new");
  EXPECT_EQ(fs::status(path("a")).permissions(), fs::perms::owner_read | fs::perms::owner_write);
}

TEST_F(FileTest, APipeIsWrittenToAndNotReplaced) {
  ASSERT_EQ(mkfifo(path("pipe").c_str(), 0600), 0);
  const int reader = open(path("pipe").c_str(), O_RDONLY | O_NONBLOCK);
  ASSERT_GE(reader, 0);
  write_file(path("pipe"), "through");
  char buffer[16] = {};
  EXPECT_EQ(read(reader, buffer, sizeof(buffer)), 7);
  EXPECT_STREQ(buffer, "through");
  close(reader);
  EXPECT_TRUE(is_fifo(path("pipe")));
  EXPECT_EQ(code_of([&] { replaceable_target(path("pipe")); }), ErrorCode::resources);
}

TEST_F(FileTest, WhatIsNoRegularFileIsRefusedWithoutWaiting) {
  ASSERT_EQ(mkfifo(path("pipe").c_str(), 0600), 0);
  EXPECT_EQ(code_of([&] { read_file(path("pipe"), {"a text"}); }), ErrorCode::bad_input);
  EXPECT_EQ(code_of([&] { read_file("/dev/zero", {"a text"}); }), ErrorCode::bad_input);
  EXPECT_EQ(code_of([&] { read_file(folder_.string(), {"a text"}); }), ErrorCode::bad_input);
  EXPECT_EQ(code_of([&] { read_file(path("absent"), {"a text"}); }), ErrorCode::bad_input);
  EXPECT_EQ(code_of([&] { read_file("/dev/zero", {.what = "a text", .most_bytes = 100'000, .regular = false}); }),
            ErrorCode::bad_input);
}

TEST_F(FileTest, PlacesThatCannotBeWrittenAreToldWithoutWriting) {
  write_file(path("there"), "old");
  for (const std::string& good : {path("there"), path("new"), std::string("/dev/null"), std::string("new_here")}) {
    EXPECT_NO_THROW(check_writable(good)) << good;
  }
  EXPECT_EQ(entries(), 1u);
  EXPECT_EQ(read_file(path("there"), {"a text"}), "old");
  for (const std::string& bad : {folder_.string(), path("absent/a"), path("there/a")}) {
    EXPECT_EQ(code_of([&] { check_writable(bad); }), ErrorCode::resources) << bad;
  }
}

TEST_F(FileTest, AFailedWriteLeavesTheOldFile) {
  EXPECT_EQ(code_of([&] { write_file(path("absent/a"), "x"); }), ErrorCode::resources);
  EXPECT_EQ(entries(), 0u);
}

}  // namespace
}  // namespace sluice
