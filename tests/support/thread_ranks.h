// SPDX-License-Identifier: MIT
// Ranks that are threads of one process: a run of several ranks without MPI, on any machine and
// under every sanitizer.
#pragma once

#include <chrono>
#include <cstring>
#include <deque>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "core/communicator.h"

namespace clearhead {

// Mail between the ranks. A message arrives `delay` after it was sent.
class ThreadNetwork {
 public:
  explicit ThreadNetwork(int size, std::chrono::microseconds delay = {})
      : size_(size), delay_(delay), alarmed_(static_cast<std::size_t>(size)) {}

  int size() const { return size_; }

  using Clock = std::chrono::steady_clock;
  struct Mail {
    std::vector<std::byte> bytes;
    Clock::time_point arrives;
  };
  using Line = std::tuple<Transport::Channel, int, int>;  // channel, from, to

  void Send(const Line& line, std::span<const std::byte> bytes) {
    const std::lock_guard lock(mutex_);
    mail_[line].push_back({{bytes.begin(), bytes.end()}, Clock::now() + delay_});
  }
  // Whether there was something.
  bool Take(const Line& line, std::span<std::byte> bytes) {
    const std::lock_guard lock(mutex_);
    std::deque<Mail>& waiting = mail_[line];
    if (waiting.empty() || waiting.front().arrives > Clock::now()) return false;
    Check(waiting.front().bytes.size() == bytes.size(), "a message of another size");
    std::memcpy(bytes.data(), waiting.front().bytes.data(), bytes.size());
    waiting.pop_front();
    return true;
  }
  void Alarm(int from) {
    const std::lock_guard lock(mutex_);
    for (int r = 0; r < size_; ++r) {
      if (r != from) alarmed_[static_cast<std::size_t>(r)] = true;
    }
  }
  bool Alarmed(int rank) {
    const std::lock_guard lock(mutex_);
    return alarmed_[static_cast<std::size_t>(rank)];
  }

 private:
  const int size_;
  const std::chrono::microseconds delay_;
  std::mutex mutex_;
  std::map<Line, std::deque<Mail>> mail_;
  std::vector<bool> alarmed_;
};

class ThreadTransport final : public Transport {
 public:
  ThreadTransport(ThreadNetwork& network, int rank, bool any_thread)
      : network_(network), rank_(rank), any_thread_(any_thread) {}

  int rank() const override { return rank_; }
  int size() const override { return network_.size(); }
  int ranks_on_these_cores() const override { return network_.size(); }
  bool any_thread() const override { return any_thread_; }

  Message Send(Channel channel, std::span<const std::byte> bytes, int to) override {
    network_.Send({channel, rank_, to}, bytes);
    finished_.push_back(true);
    return finished_.size() - 1;
  }
  Message Receive(Channel channel, std::span<std::byte> bytes, int from) override {
    finished_.push_back(false);
    expected_[{channel, from, rank_}].push_back({finished_.size() - 1, bytes});
    return finished_.size() - 1;
  }
  bool Finished(Message message) override {
    for (auto& [line, expected] : expected_) {
      while (!expected.empty() && network_.Take(line, expected.front().bytes)) {
        finished_[expected.front().message] = true;
        expected.pop_front();
      }
    }
    return finished_[message];
  }
  void Alarm() override { network_.Alarm(rank_); }
  bool Alarmed() override { return network_.Alarmed(rank_); }
  void Abandon() override {}

 private:
  struct Expected {
    Message message;
    std::span<std::byte> bytes;
  };
  ThreadNetwork& network_;
  int rank_;
  bool any_thread_;
  std::vector<bool> finished_;  // by number, which is never used again here
  std::map<ThreadNetwork::Line, std::deque<Expected>> expected_;
};

struct RankRunOptions {
  bool any_thread = true;
  std::chrono::microseconds delay{0};
};

// Runs body(communicator) on every rank, and ends them together as the program does. What each of
// them threw, or "".
inline std::vector<std::string> RunRanks(int size, const std::function<void(Communicator&)>& body,
                                         const RankRunOptions& options = {}) {
  ThreadNetwork network(size, options.delay);
  std::vector<std::string> messages(static_cast<std::size_t>(size));
  std::vector<std::thread> threads;
  for (int r = 0; r < size; ++r) {
    threads.emplace_back([&, r] {
      Communicator ranks(std::make_unique<ThreadTransport>(network, r, options.any_thread));
      int code = 1;
      try {
        body(ranks);
        code = 0;
      } catch (const RankFailed& error) {
        messages[static_cast<std::size_t>(r)] = error.what();
        code = 0;
      } catch (const std::exception& error) {
        messages[static_cast<std::size_t>(r)] = error.what();
      }
      ranks.Leave(code);
    });
  }
  for (std::thread& thread : threads) thread.join();
  return messages;
}

}  // namespace clearhead
