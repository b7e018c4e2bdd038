// SPDX-License-Identifier: MIT
#include "core/file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "core/error.h"

namespace clearhead {
namespace fs = std::filesystem;
namespace {

std::string Reason(int error) { return std::strerror(error); }

// Closes on scope exit.
struct Descriptor {
  int fd;
  ~Descriptor() {
    if (fd >= 0) ::close(fd);
  }
};

// Opens for reading and insists on a regular file, so that a folder, a pipe or a device gets a
// clear message instead of a strange read error or an endless wait.
Descriptor OpenRegular(const fs::path& path, std::uint64_t* size) {
  Descriptor file{::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)};
  if (file.fd < 0) Fail("cannot open '{}': {}", path.string(), Reason(errno));
  struct stat info {};
  if (::fstat(file.fd, &info) != 0) Fail("cannot read '{}': {}", path.string(), Reason(errno));
  if (!S_ISREG(info.st_mode)) Fail("cannot read '{}': it is not a regular file", path.string());
  *size = static_cast<std::uint64_t>(info.st_size);
  return file;
}

}  // namespace

std::string ReadFile(const fs::path& path, std::uint64_t max_bytes) {
  std::uint64_t size = 0;
  const Descriptor file = OpenRegular(path, &size);
  if (size > max_bytes) {
    Fail("'{}' is {} bytes long; at most {} were expected", path.string(), size, max_bytes);
  }
  std::string content(size, '\0');
  std::size_t done = 0;
  while (done < content.size()) {
    const ssize_t n = ::read(file.fd, content.data() + done, content.size() - done);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) Fail("cannot read '{}': {}", path.string(), Reason(errno));
    if (n == 0) Fail("'{}' shrank while it was read", path.string());
    done += static_cast<std::size_t>(n);
  }
  return content;
}

MappedFile::MappedFile(const fs::path& path) {
  std::uint64_t size = 0;
  const Descriptor file = OpenRegular(path, &size);
  size_ = size;
  if (size == 0) return;  // mmap refuses empty maps; an empty span says the same
  void* address = ::mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, file.fd, 0);
  if (address == MAP_FAILED) Fail("cannot map '{}': {}", path.string(), Reason(errno));
  data_ = static_cast<const std::byte*>(address);
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) ::munmap(const_cast<std::byte*>(data_), size_);
}

// Opened by hand and not by mkostemp, which makes private files: the kernel applies the umask here,
// and nobody else can ask for it without changing it for the whole process.
AtomicFile::AtomicFile(fs::path path) : path_(std::move(path)) {
  do {
    std::uint64_t number = 0;
    if (::getentropy(&number, sizeof number) != 0) {
      Fail("cannot write '{}': no random name: {}", path_.string(), Reason(errno));
    }
    temporary_ = path_.string() + fmt::format(".{:012x}.tmp", number >> 16);
    descriptor_ = ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  } while (descriptor_ < 0 && (errno == EEXIST || errno == EINTR));
  if (descriptor_ < 0) Fail("cannot write '{}': {}", path_.string(), Reason(errno));
}

AtomicFile::~AtomicFile() {
  if (descriptor_ >= 0) {
    ::close(descriptor_);
    ::unlink(temporary_.c_str());
  }
}

void AtomicFile::Write(std::span<const std::byte> bytes) {
  Check(descriptor_ >= 0, "write to a committed file");
  while (!bytes.empty()) {
    const ssize_t n = ::write(descriptor_, bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) Fail("cannot write '{}': {}", path_.string(), Reason(errno));
    bytes = bytes.subspan(static_cast<std::size_t>(n));
  }
}

void AtomicFile::Commit() {
  Check(descriptor_ >= 0, "commit of a committed file");
  if (::fsync(descriptor_) != 0) Fail("cannot write '{}': {}", path_.string(), Reason(errno));
  if (::rename(temporary_.c_str(), path_.c_str()) != 0) {
    Fail("cannot write '{}': {}", path_.string(), Reason(errno));
  }
  ::close(std::exchange(descriptor_, -1));
  // The rename itself survives a power cut only once the folder is synced.
  const fs::path folder = path_.has_parent_path() ? path_.parent_path() : fs::path(".");
  const Descriptor directory{::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)};
  if (directory.fd >= 0) ::fsync(directory.fd);
}

void WriteFile(const fs::path& path, std::string_view text) {
  AtomicFile file(path);
  file.Write(text);
  file.Commit();
}

void MakeDirectory(const fs::path& path) {
  std::error_code error;
  fs::create_directories(path, error);
  if (error) Fail("cannot make the folder '{}': {}", path.string(), error.message());
}

}  // namespace clearhead
