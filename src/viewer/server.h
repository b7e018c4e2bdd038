// SPDX-License-Identifier: MIT
// The page's HTTP server. It answers this machine's browser and nobody else:
//   - it listens on the loopback address unless told otherwise;
//   - the Host header must be an address or localhost with our port (no DNS rebinding);
//   - Origin and Sec-Fetch-Site, where present, must be our own (no requests from other sites);
//   - nothing in a request names a file: assets and results are in memory, chosen by route;
//   - sizes, times, connections and waiting runs are bounded (ServerLimits).
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "core/threads.h"
#include "viewer/connection.h"
#include "viewer/model_set.h"
#include "viewer/results.h"

namespace clearhead {

struct ServerLimits {
  ConnectionLimits connection = {};
  std::chrono::milliseconds run{30'000};  // a model run with its time in the line
  std::size_t waiting_runs = 8;
  std::size_t threads = 16;  // that talk to clients; models run on the pool's
  std::size_t waiting_connections = 256;
};

class PageServer {
 public:
  // Models run with `pool`, which must outlive the server; null: on one thread.
  PageServer(ModelSet set, std::vector<ResultFile> results, ThreadPool* pool,
             const ServerLimits& limits = {});
  ~PageServer();

  // Port 0: any free one. Returns the port; throws Error if it cannot be had.
  int Bind(const std::string& host, int port);
  // Serves until Stop is called from another thread.
  void Listen();
  void Stop();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// "Host" of a request, for a server on `host` and `port`.
bool IsOurHost(const std::string& header, const std::string& host, int port);

}  // namespace clearhead
