// SPDX-License-Identifier: MIT
// A client's connection as httplib reads and writes it, with limits that httplib lacks: a request
// must arrive whole within a time and a size, an answer must be taken within a time, however
// slowly the bytes drip.
#pragma once

#include <httplib.h>

#include <chrono>
#include <ctime>
#include <functional>
#include <string>

namespace clearhead {

struct ConnectionLimits {
  std::chrono::milliseconds request{10'000};  // from a request's first byte to its last
  std::chrono::milliseconds answer{30'000};
  std::chrono::milliseconds idle{5'000};  // between requests
  std::size_t request_bytes = 256 * 1024;
};

// httplib's stream has other functions in each version (Debian 12, 13 and sid: 0.11, 0.18, 0.41):
// is_writable became wait_writable, wait_readable and duration came. All are here, so none says
// `override`: where httplib has a function, this is it.
// NOLINTBEGIN(modernize-use-override)
class Connection final : public httplib::Stream {
 public:
  Connection(int socket, const ConnectionLimits& limits) : socket_(socket), limits_(limits) {}

  // Waits for the next request's first byte. False: the client left, `stop` says so, or it idled.
  bool AwaitRequest(const std::function<bool()>& stop);

  bool is_readable() const { return true; }
  bool is_writable() const { return true; }
  bool wait_readable() const { return true; }
  bool wait_writable() const { return true; }
  time_t duration() const { return 0; }
  ssize_t read(char* out, std::size_t size);
  ssize_t write(const char* data, std::size_t size);
  void get_remote_ip_and_port(std::string&, int&) const {}
  void get_local_ip_and_port(std::string&, int&) const {}
  int socket() const { return socket_; }

 private:
  using Clock = std::chrono::steady_clock;
  bool Wait(short events, Clock::time_point deadline) const;

  int socket_;
  ConnectionLimits limits_;
  std::string buffer_;
  std::size_t used_ = 0;   // of buffer_
  std::size_t taken_ = 0;  // bytes of this request
  Clock::time_point read_deadline_, write_deadline_;
  bool writing_ = false;
};
// NOLINTEND(modernize-use-override)

// Whether the client has closed its end.
bool HasLeft(int socket);

}  // namespace clearhead
