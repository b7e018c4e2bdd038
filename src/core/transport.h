// SPDX-License-Identifier: MIT
// Messages between the ranks of a run: what a Communicator is made of, and all that an MPI library
// (src/mpi) or a test has to provide. Calls come from one thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace clearhead {

class Transport {
 public:
  virtual ~Transport() = default;

  virtual int rank() const = 0;
  virtual int size() const = 0;
  // How many ranks, this one included, may run on just the cores that this one may run on.
  virtual int ranks_on_these_cores() const = 0;
  // Whether another thread than the one that made it may call it: messages can then be moved on
  // while that one computes.
  virtual bool any_thread() const = 0;

  // Between two ranks, messages of a channel arrive in the order in which they were sent, each
  // where one of its size is expected. kControl is for the end of a run, when messages of kData may
  // still be under way.
  enum class Channel { kData, kControl };
  using Message = std::uint64_t;
  // Begin at once and do not wait; the bytes stay where they are until Finished.
  virtual Message Send(Channel channel, std::span<const std::byte> bytes, int to) = 0;
  virtual Message Receive(Channel channel, std::span<std::byte> bytes, int from) = 0;
  // Moves messages on. Once it has said yes, the number is free for another message.
  virtual bool Finished(Message message) = 0;

  // Tells all other ranks, whatever they do, that this one has failed.
  virtual void Alarm() = 0;
  virtual bool Alarmed() = 0;
  // After a failure messages are left that nobody will take: the end must not wait for them.
  virtual void Abandon() = 0;
};

// A library with a transport has this C function; null if the system has no such ranks.
inline constexpr const char* kMakeTransport = "ClearheadMakeTransport";
using MakeTransport = Transport* (*)();

}  // namespace clearhead
