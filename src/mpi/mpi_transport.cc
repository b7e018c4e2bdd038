// SPDX-License-Identifier: MIT
// The ranks of mpirun or srun. A library of its own: the program opens it only when it was started
// as one of several ranks, and needs no MPI otherwise.
#include <mpi.h>
#include <sched.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <vector>

#include "core/error.h"
#include "core/transport.h"

namespace clearhead {
namespace {

// Errors of MPI itself end the run: its default, which also ends the other ranks.
class MpiTransport final : public Transport {
 public:
  MpiTransport() {
    int threads = 0;
    MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &threads);
    any_thread_ = threads >= MPI_THREAD_SERIALIZED;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank_);
    MPI_Comm_size(MPI_COMM_WORLD, &size_);
    for (MPI_Comm* comm : {&data_, &control_, &alarm_}) MPI_Comm_dup(MPI_COMM_WORLD, comm);
    CountNeighbours();
  }
  ~MpiTransport() override {
    if (abandoned_) return;
    // Alarms that arrived too late are taken, and ours are with the others by now.
    for (Request& request : alarms_) MPI_Wait(&request.request, MPI_STATUS_IGNORE);
    while (Alarmed()) TakeAlarm();
    for (MPI_Comm* comm : {&data_, &control_, &alarm_}) MPI_Comm_free(comm);
    MPI_Finalize();
  }
  MpiTransport(const MpiTransport&) = delete;
  MpiTransport& operator=(const MpiTransport&) = delete;

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  int ranks_on_these_cores() const override { return neighbours_; }
  bool any_thread() const override { return any_thread_; }

  Message Send(Channel channel, std::span<const std::byte> bytes, int to) override {
    MPI_Request request = MPI_REQUEST_NULL;
    MPI_Isend(bytes.data(), Count(bytes.size()), MPI_BYTE, to, 0, CommOf(channel), &request);
    return Keep(request);
  }
  Message Receive(Channel channel, std::span<std::byte> bytes, int from) override {
    MPI_Request request = MPI_REQUEST_NULL;
    MPI_Irecv(bytes.data(), Count(bytes.size()), MPI_BYTE, from, 0, CommOf(channel), &request);
    return Keep(request);
  }
  bool Finished(Message message) override {
    int done = 0;
    MPI_Test(&requests_[message].request, &done, MPI_STATUS_IGNORE);
    if (done != 0) free_.push_back(message);
    return done != 0;
  }

  void Alarm() override {
    for (int r = 0; r < size_; ++r) {
      if (r == rank_) continue;
      Request& request = alarms_.emplace_back();
      MPI_Isend(&alarm_byte_, 1, MPI_BYTE, r, 0, alarm_, &request.request);
    }
  }
  bool Alarmed() override {
    int found = 0;
    MPI_Iprobe(MPI_ANY_SOURCE, 0, alarm_, &found, MPI_STATUS_IGNORE);
    return found != 0;
  }
  void Abandon() override { abandoned_ = true; }

 private:
  struct Request {
    MPI_Request request = MPI_REQUEST_NULL;
  };

  static int Count(std::size_t bytes) {
    Check(bytes <= static_cast<std::size_t>(std::numeric_limits<int>::max()),
          "a message of more bytes than MPI counts");
    return static_cast<int>(bytes);
  }
  MPI_Comm CommOf(Channel channel) const { return channel == Channel::kData ? data_ : control_; }

  Message Keep(MPI_Request request) {
    if (free_.empty()) {
      free_.push_back(requests_.size());
      requests_.emplace_back();
    }
    const Message message = free_.back();
    free_.pop_back();
    requests_[message].request = request;
    return message;
  }

  void TakeAlarm() {
    char byte = 0;
    MPI_Recv(&byte, 1, MPI_BYTE, MPI_ANY_SOURCE, 0, alarm_, MPI_STATUS_IGNORE);
  }

  // Ranks of this node that may run on the same cores: all, or just this one if each is bound.
  void CountNeighbours() {
    MPI_Comm node = MPI_COMM_NULL;
    MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, rank_, MPI_INFO_NULL, &node);
    int count = 1;
    MPI_Comm_size(node, &count);
    cpu_set_t mine;
    CPU_ZERO(&mine);
    ::sched_getaffinity(0, sizeof(mine), &mine);
    std::vector<cpu_set_t> all(static_cast<std::size_t>(count));
    MPI_Allgather(&mine, sizeof(mine), MPI_BYTE, all.data(), sizeof(mine), MPI_BYTE, node);
    neighbours_ = static_cast<int>(std::count_if(
        all.begin(), all.end(), [&](const cpu_set_t& set) { return CPU_EQUAL(&set, &mine); }));
    MPI_Comm_free(&node);
  }

  int rank_ = 0, size_ = 1, neighbours_ = 1;
  bool any_thread_ = false, abandoned_ = false;
  char alarm_byte_ = 1;
  MPI_Comm data_ = MPI_COMM_NULL, control_ = MPI_COMM_NULL, alarm_ = MPI_COMM_NULL;
  std::vector<Request> requests_, alarms_;
  std::vector<Message> free_;
};

}  // namespace
}  // namespace clearhead

extern "C" __attribute__((visibility("default"))) clearhead::Transport* ClearheadMakeTransport() {
  return new clearhead::MpiTransport();
}
