// SPDX-License-Identifier: MIT
#include "core/communicator.h"

#include <algorithm>
#include <chrono>

#include "core/buffer.h"

namespace clearhead {
namespace {
using Clock = std::chrono::steady_clock;

// A rank that waits looks again and again for this long, then sleeps between looks: with more ranks
// than cores the awaited one needs the core.
constexpr std::chrono::microseconds kSpin{100}, kSleep{50};
// The thread that moves messages on while another computes takes little of its core.
constexpr std::chrono::microseconds kServeEvery{200};
// Operations whose messages are posted; those behind them wait, so that received values take a
// bounded memory.
constexpr std::size_t kPosted = 4;
// Values that are added while they are in the cache.
constexpr std::int64_t kSumBlock = 4096;

class Backoff {
 public:
  void Pause() {
    if (Clock::now() - start_ < kSpin) {
      std::this_thread::yield();
    } else {
      std::this_thread::sleep_for(kSleep);
    }
  }

 private:
  Clock::time_point start_ = Clock::now();
};

// Where what rank r sent to rank `to` lies among what all others did, in shares.
std::size_t SlotOf(int r, int to) { return static_cast<std::size_t>(r < to ? r : r - 1); }

template <typename T>
std::span<std::byte> Bytes(std::span<T> values) {
  return std::as_writable_bytes(values);
}

}  // namespace

// A bucket of values on its way. Its buffers are kept for the next one.
struct Communicator::Operation {
  enum class Kind { kReduceScatter, kAllGather };
  enum class State { kQueued, kPosted, kFinishing, kDone };
  Kind kind = Kind::kReduceScatter;
  State state = State::kQueued;
  std::span<float> values;
  DType wire = DType::kF32;
  std::vector<std::byte> sent, received;  // as they travel; all ranks' but one's own
  std::vector<Transport::Message> open;
};

Communicator::Communicator() = default;

Communicator::Communicator(std::unique_ptr<Transport> transport)
    : transport_(std::move(transport)), rank_(transport_->rank()), size_(transport_->size()) {}

Communicator::~Communicator() {
  if (server_.joinable()) {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    wake_.notify_all();
    server_.join();
  }
  transport_.reset();  // before the memory of what it carries
}

std::vector<Transport::Message> Communicator::Post(std::span<const std::span<const std::byte>> to,
                                                   std::span<const std::span<std::byte>> from) {
  std::vector<Transport::Message> messages;
  for (int step = 1; step < size_; ++step) {  // not everybody to the same rank at first
    const auto source = static_cast<std::size_t>((rank_ + size_ - step) % size_);
    const auto target = static_cast<std::size_t>((rank_ + step) % size_);
    if (!from[source].empty()) {
      messages.push_back(
          transport_->Receive(Transport::Channel::kData, from[source], static_cast<int>(source)));
    }
    if (!to[target].empty()) {
      messages.push_back(
          transport_->Send(Transport::Channel::kData, to[target], static_cast<int>(target)));
    }
  }
  return messages;
}

void Communicator::CheckAlarm() {
  bool alarmed = false;
  {
    const std::lock_guard lock(mutex_);
    alarmed = transport_->Alarmed();
  }
  if (!alarmed) return;
  Leave(0);
  throw RankFailed("another rank failed");
}

void Communicator::Await(std::vector<Transport::Message>& messages) {
  Backoff backoff;
  while (true) {
    {
      const std::lock_guard lock(mutex_);
      std::erase_if(messages, [&](Transport::Message m) { return transport_->Finished(m); });
    }
    if (messages.empty()) return;
    CheckAlarm();
    backoff.Pause();
  }
}

void Communicator::Exchange(std::span<const std::span<const std::byte>> to,
                            std::span<const std::span<std::byte>> from) {
  const auto self = static_cast<std::size_t>(rank_);
  Check(to[self].size() == from[self].size(), "a rank sends itself what it expects");
  std::copy(to[self].begin(), to[self].end(), from[self].begin());
  if (alone()) return;
  Check(!left_, "ranks that have left say nothing");
  std::vector<Transport::Message> messages;
  {
    const std::lock_guard lock(mutex_);
    Check(queue_.empty(), "an exchange waits for what is under way");
    messages = Post(to, from);
  }
  Await(messages);
}

void Communicator::AllGather(std::span<const double> mine, std::span<double> all) {
  const auto ranks = static_cast<std::size_t>(size_);
  Check(all.size() == mine.size() * ranks, "numbers of all ranks");
  const std::vector<std::span<const std::byte>> to(ranks, std::as_bytes(mine));
  std::vector<std::span<std::byte>> from;
  for (std::size_t r = 0; r < ranks; ++r) {
    from.push_back(Bytes(all.subspan(r * mine.size(), mine.size())));
  }
  Exchange(to, from);
}

void Communicator::Sum(std::span<double> values) {
  if (alone()) return;
  std::vector<double> all(values.size() * static_cast<std::size_t>(size_));
  AllGather(values, all);
  std::copy_n(all.begin(), values.size(), values.begin());
  for (std::size_t i = values.size(); i < all.size(); ++i) values[i % values.size()] += all[i];
}

double Communicator::Sum(double value) {
  Sum(std::span(&value, 1));
  return value;
}

bool Communicator::Any(bool mine) { return Sum(mine ? 1.0 : 0.0) > 0.0; }

double Communicator::OfFirst(double value) {
  std::vector<double> all(static_cast<std::size_t>(size_));
  AllGather({&value, 1}, all);
  return all[0];
}

void Communicator::ToFirst(int from, std::span<float> values) {
  if (from == 0 || (rank_ != 0 && rank_ != from) || values.empty()) return;
  std::vector<Transport::Message> message;
  {
    const std::lock_guard lock(mutex_);
    message = {rank_ == 0 ? transport_->Receive(Transport::Channel::kData, Bytes(values), from)
                          : transport_->Send(Transport::Channel::kData, std::as_bytes(values), 0)};
  }
  Await(message);
}

Communicator::Operation& Communicator::NewOperation(std::span<float> values) {
  Check(!left_, "ranks that have left say nothing");
  if (free_.empty()) free_.push_back(std::make_unique<Operation>());
  std::unique_ptr<Operation> operation = std::move(free_.back());
  free_.pop_back();
  operation->state = Operation::State::kQueued;
  operation->values = values;
  queue_.push_back(std::move(operation));
  return *queue_.back();
}

void Communicator::StartReduceScatter(std::span<float> values, DType wire) {
  if (alone()) return;
  {
    const std::lock_guard lock(mutex_);
    Operation& operation = NewOperation(values);
    operation.kind = Operation::Kind::kReduceScatter;
    operation.wire = wire;
    if (!server_.joinable() && transport_->any_thread()) {
      server_ = std::thread([this] { Serve(); });
    }
  }
  wake_.notify_all();
  std::unique_lock lock(mutex_);
  Progress(lock);
}

void Communicator::StartAllGather(std::span<float> values) {
  if (alone()) return;
  std::unique_lock lock(mutex_);
  Operation& operation = NewOperation(values);
  operation.kind = Operation::Kind::kAllGather;
  operation.wire = DType::kF32;
  Progress(lock);
}

// Messages of an operation: with kF32 they go from and, of all-gather, to the values themselves.
void Communicator::PostOperation(Operation& operation) {
  const auto count = static_cast<std::int64_t>(operation.values.size());
  const auto ranks = static_cast<std::size_t>(size_);
  const auto part = [&](int r) {
    const RankShare share = Share(count, r);
    return operation.values.subspan(static_cast<std::size_t>(share.first),
                                    static_cast<std::size_t>(share.size()));
  };
  std::vector<std::span<const std::byte>> to(ranks);
  std::vector<std::span<std::byte>> from(ranks);
  // Buffers go from operation to operation: as many are made as operations are posted at a time.
  const auto lend = [&](const std::unique_ptr<Operation>& idle) {
    const bool unused =
        idle->state == Operation::State::kQueued || idle->state == Operation::State::kDone;
    if (idle.get() == &operation || !unused || operation.received.capacity() > 0) return;
    std::swap(operation.received, idle->received);
    std::swap(operation.sent, idle->sent);
  };
  if (operation.kind == Operation::Kind::kAllGather) {
    for (int r = 0; r < size_; ++r) {
      to[static_cast<std::size_t>(r)] = std::as_bytes(part(rank_));
      from[static_cast<std::size_t>(r)] = Bytes(part(r));
    }
  } else {
    const auto value = static_cast<std::size_t>(DTypeSize(operation.wire));
    const auto own = static_cast<std::size_t>(Share(count).size()) * value;
    std::for_each(free_.begin(), free_.end(), lend);
    std::for_each(queue_.begin(), queue_.end(), lend);
    operation.received.resize(own * (ranks - 1));
    if (operation.wire != DType::kF32) {
      operation.sent.resize(operation.values.size() * value);
      ConvertFromFloat(operation.values.data(), count, operation.wire, operation.sent.data());
    }
    for (int r = 0; r < size_; ++r) {
      const RankShare share = Share(count, r);
      const auto at = static_cast<std::size_t>(r);
      if (r == rank_) continue;
      from[at] = std::span(operation.received).subspan(SlotOf(r, rank_) * own, own);
      to[at] = operation.wire == DType::kF32
                   ? std::as_bytes(part(r))
                   : std::span<const std::byte>(operation.sent)
                         .subspan(static_cast<std::size_t>(share.first) * value,
                                  static_cast<std::size_t>(share.size()) * value);
    }
  }
  operation.open = Post(to, from);
  operation.state = Operation::State::kPosted;
}

// The sum of what came, rank after rank.
void Communicator::Finish(Operation& operation) const {
  if (operation.kind == Operation::Kind::kAllGather) return;
  const RankShare own = Share(static_cast<std::int64_t>(operation.values.size()));
  const auto value = static_cast<std::size_t>(DTypeSize(operation.wire));
  float* mine = operation.values.data() + own.first;
  std::array<float, kSumBlock> sum, part;
  for (std::int64_t at = 0; at < own.size(); at += kSumBlock) {
    const std::int64_t n = std::min(kSumBlock, own.size() - at);
    for (int r = 0; r < size_; ++r) {
      float* to = r == 0 ? sum.data() : part.data();
      if (r == rank_) {
        std::copy_n(mine + at, n, to);
      } else {
        const std::size_t first =
            SlotOf(r, rank_) * static_cast<std::size_t>(own.size()) + static_cast<std::size_t>(at);
        ConvertToFloat(operation.wire, operation.received.data() + first * value, n, to);
      }
      for (std::int64_t i = 0; r > 0 && i < n; ++i) {
        sum[static_cast<std::size_t>(i)] += part[static_cast<std::size_t>(i)];
      }
    }
    std::copy_n(sum.data(), n, mine + at);
  }
}

bool Communicator::Progress(std::unique_lock<std::mutex>& lock) {
  bool moved = false;
  std::size_t posted = 0;
  for (std::size_t i = 0; i < queue_.size() && posted < kPosted; ++i) {
    Operation& operation = *queue_[i];  // stays where it is while others are added or removed
    if (operation.state == Operation::State::kQueued) {
      PostOperation(operation);
      moved = true;
    }
    if (operation.state == Operation::State::kPosted) {
      std::erase_if(operation.open, [&](Transport::Message m) { return transport_->Finished(m); });
      if (operation.open.empty()) {
        operation.state = Operation::State::kFinishing;
        lock.unlock();
        Finish(operation);
        lock.lock();
        operation.state = Operation::State::kDone;
        moved = true;
        break;  // the queue may be another meanwhile
      }
    }
    if (operation.state != Operation::State::kDone) ++posted;
  }
  while (!queue_.empty() && queue_.front()->state == Operation::State::kDone) {
    free_.push_back(std::move(queue_.front()));
    queue_.pop_front();
  }
  return moved;
}

void Communicator::WaitAll() {
  if (alone()) return;
  Backoff backoff;
  while (true) {
    bool moved = false;
    {
      std::unique_lock lock(mutex_);
      moved = Progress(lock);
      if (queue_.empty()) return;
    }
    if (moved) {
      backoff = {};
      continue;
    }
    CheckAlarm();
    backoff.Pause();
  }
}

void Communicator::Serve() {
  std::unique_lock lock(mutex_);
  while (!stopping_) {
    if (queue_.empty()) {
      wake_.wait(lock);
    } else if (!Progress(lock)) {
      wake_.wait_for(lock, kServeEvery);
    }
  }
}

Communicator::Ending Communicator::Leave(int code) {
  if (left_) return ending_;
  left_ = true;
  ending_.code = code;
  if (alone()) return ending_;
  const auto ranks = static_cast<std::size_t>(size_);
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;  // what is under way stays there
    if (code != 0) transport_->Alarm();
  }
  wake_.notify_all();
  if (server_.joinable()) server_.join();
  // With the code: whether messages are left that nobody will take.
  const std::array<std::int32_t, 2> mine = {code, queue_.empty() ? 0 : 1};
  std::vector<std::array<std::int32_t, 2>> all(ranks);
  std::vector<Transport::Message> messages;
  {
    const std::lock_guard lock(mutex_);
    for (int r = 0; r < size_; ++r) {
      if (r == rank_) continue;
      const std::span one(&all[static_cast<std::size_t>(r)], 1);
      messages.push_back(transport_->Receive(Transport::Channel::kControl, Bytes(one), r));
      messages.push_back(
          transport_->Send(Transport::Channel::kControl, std::as_bytes(std::span(&mine, 1)), r));
    }
  }
  all[static_cast<std::size_t>(rank_)] = mine;
  Backoff backoff;
  while (true) {
    {
      const std::lock_guard lock(mutex_);
      std::erase_if(messages, [&](Transport::Message m) { return transport_->Finished(m); });
    }
    if (messages.empty()) break;
    backoff.Pause();
  }
  const auto is_failed = [](const auto& of) { return of[0] != 0; };
  const auto failed = std::find_if(all.begin(), all.end(), is_failed);
  ending_.speaks = failed == all.end() ? first() : failed - all.begin() == rank_;
  ending_.named = !std::all_of(all.begin(), all.end(), is_failed);
  if (failed != all.end()) ending_.code = (*failed)[0];
  // Those that were told of a failure left what they waited for.
  const bool told = failed != all.end() && ending_.named;
  if (told || std::any_of(all.begin(), all.end(), [](const auto& of) { return of[1] != 0; })) {
    transport_->Abandon();
  }
  return ending_;
}

}  // namespace clearhead
