// SPDX-License-Identifier: MIT
// What the ranks of a run say to each other. Every rank makes the same calls in the same order.
// Sums go by the number of the rank, so they have the same bits whatever carries the messages.
//
// A rank that fails tells the others, who then throw RankFailed from wherever they wait; nobody
// goes on before all have arrived at the end (Leave), so that no memory goes away under a message.
#pragma once

#include <array>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <span>
#include <thread>
#include <vector>

#include "core/dtype.h"
#include "core/error.h"
#include "core/transport.h"

namespace clearhead {

// Another rank has failed and says why.
class RankFailed : public Error {
 public:
  using Error::Error;
};

// A share [first, last) of something that ranks share out.
struct RankShare {
  std::int64_t first = 0, last = 0;
  std::int64_t size() const { return last - first; }
};

class Communicator {
 public:
  Communicator();  // one rank, which says nothing
  explicit Communicator(std::unique_ptr<Transport> transport);
  ~Communicator();
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  int rank() const { return rank_; }
  int size() const { return size_; }
  bool alone() const { return size_ == 1; }
  bool first() const { return rank_ == 0; }  // who writes files and speaks
  int ranks_on_these_cores() const { return alone() ? 1 : transport_->ranks_on_these_cores(); }

  // Rank `of`'s part of `count` things: shares are contiguous and differ by one at most.
  RankShare Share(std::int64_t count, int of) const {
    return {count * of / size_, count * (of + 1) / size_};
  }
  RankShare Share(std::int64_t count) const { return Share(count, rank_); }
  // Whether this rank takes part p of a work whose parts are dealt out one by one.
  bool Owns(std::size_t part) const {
    return part % static_cast<std::size_t>(size_) == static_cast<std::size_t>(rank_);
  }

  // ---- The caller waits ----
  // Every rank's numbers, by rank: all[r * mine.size() + i].
  void AllGather(std::span<const double> mine, std::span<double> all);
  void Sum(std::span<double> values);
  double Sum(double value);
  bool Any(bool mine);
  // The first rank's number, on all.
  double OfFirst(double value);
  // What rank `from` has in `values`, into the first rank's; the others do nothing.
  void ToFirst(int from, std::span<float> values);
  // Everybody's bytes for everybody: to[r] goes to rank r, from[r] is filled by it. Both sides know
  // the sizes.
  void Exchange(std::span<const std::span<const std::byte>> to,
                std::span<const std::span<std::byte>> from);

  // ---- Under way while the caller goes on, until WaitAll ----
  // Share(values.size()) becomes the sum of all ranks' values there; the rest stays as it is. On
  // its way a value has the type `wire`: kF32, or kBF16 for half the bytes.
  void StartReduceScatter(std::span<float> values, DType wire = DType::kF32);
  // Every rank's share of `values` becomes what that rank has there.
  void StartAllGather(std::span<float> values);
  void WaitAll();

  // ---- The end ----
  struct Ending {
    int code = 0;        // of the first rank that failed; 0: none
    bool speaks = true;  // whether this rank tells the user
    bool named = false;  // and has to say which one it is, since not all failed
  };
  // Waits until all ranks are here, each with 0 or its own exit code, which ends what the others
  // wait for. Calls after the first return the same.
  Ending Leave(int code);

 private:
  struct Operation;
  // A connection of bytes to and from each rank, and what waits for it.
  std::vector<Transport::Message> Post(std::span<const std::span<const std::byte>> to,
                                       std::span<const std::span<std::byte>> from);
  void Await(std::vector<Transport::Message>& messages);
  void CheckAlarm();
  Operation& NewOperation(std::span<float> values);
  void PostOperation(Operation& operation);
  void Finish(Operation& operation) const;
  // One look at what is under way; whether anything moved. The lock is released for sums.
  bool Progress(std::unique_lock<std::mutex>& lock);
  void Serve();

  std::unique_ptr<Transport> transport_;
  int rank_ = 0, size_ = 1;
  bool left_ = false;
  Ending ending_;

  std::mutex mutex_;  // of the transport and all below
  std::condition_variable wake_;
  std::vector<std::unique_ptr<Operation>> free_;
  std::deque<std::unique_ptr<Operation>> queue_;  // in order of their start
  bool stopping_ = false;
  std::thread server_;  // moves messages on while the caller computes
};

}  // namespace clearhead
