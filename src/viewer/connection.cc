// SPDX-License-Identifier: MIT
#include "viewer/connection.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>

namespace clearhead {
namespace {

constexpr std::size_t kPiece = 16 * 1024;

}  // namespace

bool Connection::Wait(short events, Clock::time_point deadline) const {
  while (true) {
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now()).count();
    if (left <= 0) return false;
    pollfd entry{.fd = socket_, .events = events, .revents = 0};
    const int ready = ::poll(&entry, 1, static_cast<int>(std::min<long long>(left, 60'000)));
    if (ready > 0) return true;
    if (ready < 0 && errno != EINTR) return false;
  }
}

bool Connection::AwaitRequest(const std::function<bool()>& stop) {
  const auto until = Clock::now() + limits_.idle;
  while (used_ == buffer_.size()) {
    if (stop() || Clock::now() > until) return false;
    if (Wait(POLLIN, std::min(until, Clock::now() + std::chrono::milliseconds(50)))) break;
  }
  taken_ = 0;
  writing_ = false;
  read_deadline_ = Clock::now() + limits_.request;
  return true;
}

ssize_t Connection::read(char* out, std::size_t size) {
  if (used_ == buffer_.size()) {
    if (taken_ >= limits_.request_bytes || !Wait(POLLIN, read_deadline_)) return -1;
    buffer_.resize(kPiece);
    used_ = 0;
    const ssize_t got = ::recv(socket_, buffer_.data(), buffer_.size(), MSG_DONTWAIT);
    buffer_.resize(got > 0 ? static_cast<std::size_t>(got) : 0);
    if (got <= 0) return got;
    taken_ += static_cast<std::size_t>(got);
  }
  const std::size_t count = std::min(size, buffer_.size() - used_);
  std::copy_n(buffer_.data() + used_, count, out);
  used_ += count;
  return static_cast<ssize_t>(count);
}

ssize_t Connection::write(const char* data, std::size_t size) {
  if (!writing_) write_deadline_ = Clock::now() + limits_.answer;
  writing_ = true;
  std::size_t sent = 0;
  while (sent < size) {
    if (!Wait(POLLOUT, write_deadline_)) return -1;
    const ssize_t count = ::send(socket_, data + sent, size - sent, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (count < 0 && errno != EAGAIN && errno != EINTR) return -1;
    if (count > 0) sent += static_cast<std::size_t>(count);
  }
  return static_cast<ssize_t>(size);
}

bool HasLeft(int socket) {
  pollfd entry{.fd = socket, .events = POLLRDHUP, .revents = 0};
  return ::poll(&entry, 1, 0) > 0 && (entry.revents & (POLLRDHUP | POLLHUP | POLLERR)) != 0;
}

}  // namespace clearhead
