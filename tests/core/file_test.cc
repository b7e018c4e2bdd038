// SPDX-License-Identifier: MIT
#include "core/file.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <string>
#include <utility>

#include "core/error.h"
#include "support/temporary_folder.h"

namespace {
std::atomic<int> umask_calls = 0;
}  // namespace

// In the place of the C library's, to see who calls it.
extern "C" mode_t umask(mode_t mask) noexcept {
  ++umask_calls;
  return static_cast<mode_t>(::syscall(SYS_umask, mask));
}

namespace clearhead {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;
using testing::ThrowsMessage;

std::size_t FilesIn(const fs::path& folder) {
  return static_cast<std::size_t>(
      std::distance(fs::directory_iterator(folder), fs::directory_iterator()));
}

std::string Text(const MappedFile& file) {
  return {reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()};
}

TEST(File, WritesAndReadsEveryByteValue) {
  const TemporaryFolder folder;
  std::string bytes;
  for (int i = 0; i < 256 * 257; ++i) bytes += static_cast<char>(i % 256);
  WriteFile(folder / "bytes", bytes);
  EXPECT_EQ(ReadFile(folder / "bytes"), bytes);
  EXPECT_EQ(Text(MappedFile(folder / "bytes")), bytes);
  EXPECT_EQ(FilesIn(folder.path()), 1u) << "a temporary was left";
}

TEST(File, EmptyFileIsEmpty) {
  const TemporaryFolder folder;
  WriteFile(folder / "empty", "");
  EXPECT_EQ(ReadFile(folder / "empty"), "");
  EXPECT_TRUE(MappedFile(folder / "empty").bytes().empty());
}

TEST(File, MissingFileIsNamed) {
  const TemporaryFolder folder;
  const fs::path path = folder / "missing.bin";
  const auto message = AllOf(HasSubstr("missing.bin"), HasSubstr("No such file"));
  EXPECT_THAT([&] { ReadFile(path); }, ThrowsMessage<Error>(message));
  EXPECT_THAT([&] { MappedFile{path}; }, ThrowsMessage<Error>(message));
}

TEST(File, FolderFifoAndDeviceAreRefusedWithoutWaiting) {
  const TemporaryFolder folder;
  const fs::path fifo = folder / "fifo";
  ASSERT_EQ(::mkfifo(fifo.c_str(), 0600), 0);
  for (const fs::path& path : {folder.path(), fifo, fs::path("/dev/zero")}) {
    const auto message = AllOf(HasSubstr(path.string()), HasSubstr("not a regular file"));
    EXPECT_THAT([&] { ReadFile(path); }, ThrowsMessage<Error>(message));
    EXPECT_THAT([&] { MappedFile{path}; }, ThrowsMessage<Error>(message));
  }
}

TEST(File, ReadRefusesMoreThanTheLimit) {
  const TemporaryFolder folder;
  WriteFile(folder / "seven", "1234567");
  EXPECT_EQ(ReadFile(folder / "seven", 7), "1234567");
  EXPECT_THAT([&] { ReadFile(folder / "seven", 6); },
              ThrowsMessage<Error>(AllOf(HasSubstr("seven"), HasSubstr("7 bytes"))));
}

TEST(MappedFile, MovesKeepTheBytes) {
  const TemporaryFolder folder;
  WriteFile(folder / "a", "first");
  WriteFile(folder / "b", "second");
  MappedFile a(folder / "a");
  MappedFile b(folder / "b");
  b = std::move(a);
  EXPECT_EQ(Text(b), "first");
  const MappedFile c = std::move(b);
  EXPECT_EQ(Text(c), "first");
}

TEST(MappedFile, OutlivesTheNameOfTheFile) {
  const TemporaryFolder folder;
  WriteFile(folder / "a", "still here");
  const MappedFile map(folder / "a");
  WriteFile(folder / "a", "replaced");  // a rename: the mapped file itself is untouched
  EXPECT_EQ(Text(map), "still here");
}

TEST(AtomicFile, WithoutCommitNothingIsLeft) {
  const TemporaryFolder folder;
  {
    AtomicFile file(folder / "a");
    file.Write("half of it");
    EXPECT_FALSE(fs::exists(folder / "a"));
  }
  EXPECT_EQ(FilesIn(folder.path()), 0u);
}

TEST(AtomicFile, WithoutCommitTheOldContentStays) {
  const TemporaryFolder folder;
  WriteFile(folder / "a", "old");
  { AtomicFile(folder / "a").Write("new"); }
  EXPECT_EQ(ReadFile(folder / "a"), "old");
  WriteFile(folder / "a", "new");
  EXPECT_EQ(ReadFile(folder / "a"), "new");
  EXPECT_EQ(FilesIn(folder.path()), 1u);
}

// Root may write into read-only folders, but nobody may write below a file or rename over a folder.
TEST(AtomicFile, FailureNamesTheFileAndLeavesNothing) {
  const TemporaryFolder folder;
  WriteFile(folder / "file", "x");
  const fs::path below = folder / "file" / "a.bin";
  EXPECT_THAT([&] { AtomicFile{below}; }, ThrowsMessage<Error>(HasSubstr("a.bin")));
  const fs::path missing = folder / "no-such-folder" / "b.bin";
  EXPECT_THAT([&] { AtomicFile{missing}; }, ThrowsMessage<Error>(HasSubstr("b.bin")));
  EXPECT_THAT([] { WriteFile("/proc/clearhead.bin", "x"); },
              ThrowsMessage<Error>(HasSubstr("/proc/clearhead.bin")));

  fs::create_directory(folder / "taken");
  WriteFile(folder / "taken" / "inside", "x");
  EXPECT_THAT([&] { WriteFile(folder / "taken", "y"); }, ThrowsMessage<Error>(HasSubstr("taken")));
  EXPECT_EQ(FilesIn(folder.path()), 2u) << "a temporary was left";
}

TEST(AtomicFile, IsSpentAfterCommit) {
  const TemporaryFolder folder;
  AtomicFile file(folder / "a");
  file.Commit();
  EXPECT_THROW(file.Write("more"), std::logic_error);
  EXPECT_THROW(file.Commit(), std::logic_error);
}

TEST(AtomicFile, GetsTheModeThatTheUmaskGives) {
  const TemporaryFolder folder;
  const mode_t before = ::umask(027);
  WriteFile(folder / "a", "x");
  ::umask(before);
  struct stat info {};
  ASSERT_EQ(::stat((folder / "a").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0640u);
}

// The mask belongs to the whole process: a file that another thread makes while it is changed, even
// for a moment, gets the wrong mode.
TEST(AtomicFile, LeavesTheUmaskAlone) {
  const TemporaryFolder folder;
  const int before = umask_calls;
  WriteFile(folder / "a", "x");
  EXPECT_EQ(umask_calls, before);
}

TEST(AtomicFile, TwoOfOneNameAtATimeDoNotMeet) {
  const TemporaryFolder folder;
  AtomicFile first(folder / "a"), second(folder / "a");
  first.Write("first");
  second.Write("second");
  first.Commit();
  EXPECT_EQ(ReadFile(folder / "a"), "first");
  second.Commit();
  EXPECT_EQ(ReadFile(folder / "a"), "second");
  EXPECT_EQ(FilesIn(folder.path()), 1u);
}

TEST(AtomicFile, WorksWithoutAFolderInThePath) {
  const TemporaryFolder folder;
  const fs::path before = fs::current_path();
  fs::current_path(folder.path());
  WriteFile("plain", "x");
  fs::current_path(before);
  EXPECT_EQ(ReadFile(folder / "plain"), "x");
}

TEST(MakeDirectory, MakesParentsAndAcceptsWhatExists) {
  const TemporaryFolder folder;
  MakeDirectory(folder / "a/b/c");
  MakeDirectory(folder / "a/b/c");
  EXPECT_TRUE(fs::is_directory(folder / "a/b/c"));
  WriteFile(folder / "file", "x");
  EXPECT_THAT([&] { MakeDirectory(folder / "file/below"); },
              ThrowsMessage<Error>(HasSubstr("file/below")));
  EXPECT_THAT([&] { MakeDirectory(folder / "file"); }, ThrowsMessage<Error>(HasSubstr("file")));
}

}  // namespace
}  // namespace clearhead
