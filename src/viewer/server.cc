// SPDX-License-Identifier: MIT
#include "viewer/server.h"

#include <arpa/inet.h>
#include <sys/socket.h>
#include <unistd.h>

#include <charconv>
#include <condition_variable>
#include <cstdlib>
#include <deque>
#include <functional>
#include <mutex>
#include <set>
#include <string_view>
#include <thread>
#include <utility>

#include "core/error.h"
#include "viewer/changed_run.h"
#include "viewer/feature_answers.h"
#include "viewer/frame.h"
#include "viewer/lens_answer.h"
#include "viewer/page_api.h"
#include "viewer/page_assets.h"
#include "viewer/trace_answers.h"
#include "viewer/work_queue.h"

namespace clearhead {
namespace {

using httplib::Request;
using httplib::Response;

// Where the handler finds the connection it serves. Set by us on every request, never by a client.
constexpr const char* kSocketHeader = "Clearhead-Socket";
constexpr const char* kJsonType = "application/json";
constexpr int kRequestsPerConnection = 1000;

void Answer(Response& response, int status, const std::string& message) {
  response.status = status;
  response.set_content(ToText(Json{{"error", message}}, -1), kJsonType);
}

// void in httplib 0.11, later whether the job was taken.
using Enqueued = decltype(std::declval<httplib::TaskQueue&>().enqueue({}));

// httplib's own pool keeps every connection that arrives. Here the line is bounded, and a thread
// whose client idles gives way when others wait.
class ConnectionPool final : public httplib::TaskQueue {
 public:
  ConnectionPool(std::size_t threads, std::size_t waiting) : waiting_(waiting) {
    for (std::size_t i = 0; i < threads; ++i) threads_.emplace_back([this] { Work(); });
  }

  // Beyond the bound the connection is refused on the accepting thread.
  Enqueued enqueue(std::function<void()> serve) override {
    {
      const std::lock_guard lock(mutex_);
      if (jobs_.size() < waiting_) {
        jobs_.push_back(std::move(serve));
        arrived_.notify_one();
        return Enqueued(true);
      }
    }
    serve();
    return Enqueued(true);
  }

  void shutdown() override {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    arrived_.notify_all();
    for (std::thread& thread : threads_) thread.join();
  }

  bool IsWorker(std::thread::id id) {
    const std::lock_guard lock(mutex_);
    return workers_.contains(id);
  }
  bool OthersWait() {
    const std::lock_guard lock(mutex_);
    return stopping_ || !jobs_.empty();
  }

 private:
  void Work() {
    std::unique_lock lock(mutex_);
    workers_.insert(std::this_thread::get_id());
    while (true) {
      arrived_.wait(lock, [&] { return stopping_ || !jobs_.empty(); });
      if (jobs_.empty()) return;
      const std::function<void()> serve = std::move(jobs_.front());
      jobs_.pop_front();
      lock.unlock();
      serve();
      lock.lock();
    }
  }

  const std::size_t waiting_;
  std::mutex mutex_;
  std::condition_variable arrived_;
  std::deque<std::function<void()>> jobs_;
  std::set<std::thread::id> workers_;
  bool stopping_ = false;
  std::vector<std::thread> threads_;
};

class LimitedServer final : public httplib::Server {
 public:
  explicit LimitedServer(const ServerLimits& limits) : limits_(limits) {
    new_task_queue = [this] {
      pool_ = new ConnectionPool(limits_.threads, limits_.waiting_connections);
      return pool_;  // httplib owns it
    };
    // httplib would let a second server share the port.
    set_socket_options([](int socket) {
      const int yes = 1;
      ::setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
    });
    set_payload_max_length(limits.connection.request_bytes);
  }

  // httplib lets five connections wait to be accepted. Beyond that Linux drops the last step of the
  // handshake: the client believes itself connected and waits for minutes for an answer.
  void WidenAcceptQueue() { ::listen(svr_sock_, 1024); }

 private:
  bool process_and_close_socket(int socket) override {
    if (pool_->IsWorker(std::this_thread::get_id())) {
      Serve(socket);
    } else {
      constexpr std::string_view kBusy =
          "HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1\r\nConnection: close\r\n"
          "Content-Length: 0\r\n\r\n";
      ::send(socket, kBusy.data(), kBusy.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
    }
    ::shutdown(socket, SHUT_RDWR);
    ::close(socket);
    return true;
  }

  void Serve(int socket) {
    Connection connection(socket, limits_.connection);
    const auto setup = [socket](Request& request) {
      // Compressed bodies could unfold to any size, ranges multiply an answer: neither is needed.
      request.headers.erase("Content-Encoding");
      request.headers.erase("Range");
      request.ranges.clear();
      request.headers.erase(kSocketHeader);
      request.set_header(kSocketHeader, std::to_string(socket));
    };
    for (int count = 1; count <= kRequestsPerConnection; ++count) {
      const bool first = count == 1;
      if (!connection.AwaitRequest([&] { return !first && pool_->OthersWait(); })) return;
      bool closed = false;
      const bool last = count == kRequestsPerConnection;
      if (!Process(connection, last, closed, setup) || closed) return;
    }
  }

  // Later versions of httplib also ask for both ends' addresses; nothing here reads them.
  template <typename Stream, typename Setup>
  bool Process(Stream& stream, bool last, bool& closed, const Setup& setup) {
    if constexpr (requires { this->process_request(stream, last, closed, setup); }) {
      return this->process_request(stream, last, closed, setup);
    } else {
      return this->process_request(stream, "", 0, "", 0, last, closed, setup);
    }
  }

  const ServerLimits limits_;
  ConnectionPool* pool_ = nullptr;
};

int SocketOf(const Request& request) {
  return std::atoi(request.get_header_value(kSocketHeader).c_str());
}

// The fields "client" and "number" of a question; the rest of it is judged by ParseQuestion.
Asker AskerOf(const std::string& body) {
  Asker asker;
  const Json json = ParseJson(body, "question");
  if (!json.is_object()) return asker;
  if (const auto client = json.find("client"); client != json.end() && client->is_string()) {
    asker.client = client->get<std::string>().substr(0, 64);
  }
  if (const auto number = json.find("number");
      number != json.end() && number->is_number_integer()) {
    asker.number = number->get<std::int64_t>();
  }
  return asker;
}

int StatusOf(WorkOutcome outcome) {
  switch (outcome) {
    case WorkOutcome::kDone:
      return 200;
    case WorkOutcome::kFull:
      return 503;
    case WorkOutcome::kCancelled:
      return 409;
    case WorkOutcome::kTooLong:
      return 504;
    case WorkOutcome::kRefused:
      return 400;
    case WorkOutcome::kBroken:
      break;
  }
  return 500;
}

}  // namespace

bool IsOurHost(const std::string& header, const std::string& host, int port) {
  const std::string suffix = fmt::format(":{}", port);
  // A browser leaves the port out when it is 80.
  std::string name = header;
  if (name.ends_with(suffix)) {
    name.resize(name.size() - suffix.size());
  } else if (port != 80) {
    return false;
  }
  if (name == "localhost" || name == host) return true;
  if (name.starts_with('[') && name.ends_with(']')) name = name.substr(1, name.size() - 2);
  in6_addr address;
  return ::inet_pton(AF_INET, name.c_str(), &address) == 1 ||
         ::inet_pton(AF_INET6, name.c_str(), &address) == 1;
}

struct PageServer::State {
  State(ModelSet models, std::vector<ResultFile> files, ThreadPool* pool,
        const ServerLimits& limits)
      : set(std::move(models)),
        results(std::move(files)),
        overview(ToText(Overview(set, results), -1)),
        work(limits.waiting_runs, limits.run, pool),
        server(limits) {
    Route();
  }

  // Whether the request may be answered at all; otherwise the refusal is in `response`.
  bool Allowed(const Request& request, Response& response) const {
    const auto refuse = [&](const char* why) {
      Answer(response, 403, why);
      return false;
    };
    if (request.get_header_value_count("Host") != 1 ||
        !IsOurHost(request.get_header_value("Host"), host, port)) {
      return refuse("this address is not the server's own");
    }
    if (request.has_header("Origin")) {
      const std::string origin = request.get_header_value("Origin");
      if (!origin.starts_with("http://") || !IsOurHost(origin.substr(7), host, port)) {
        return refuse("requests from other sites are not answered");
      }
    }
    if (request.path.starts_with("/api/") && request.has_header("Sec-Fetch-Site")) {
      const std::string site = request.get_header_value("Sec-Fetch-Site");
      if (site != "same-origin" && site != "none") {
        return refuse("requests from other sites are not answered");
      }
    }
    return true;
  }

  using Answerer = std::function<std::string(const WorkQueue::Cancel& cancelled)>;

  // `understand` turns the question's text into what answers it, or throws Error.
  void Ask(const Request& request, Response& response,
           const std::function<Answerer(const std::string& body)>& understand) {
    if (!request.get_header_value("Content-Type").starts_with(kJsonType)) {
      Answer(response, 415, "questions are JSON: Content-Type must be application/json");
      return;
    }
    Answerer answer;
    Asker asker;
    try {
      answer = understand(request.body);
      asker = AskerOf(request.body);
    } catch (const Error& error) {
      Answer(response, 400, error.what());
      return;
    }
    const int socket = SocketOf(request);
    const WorkResult result = work.Ask(asker, answer, [socket] { return HasLeft(socket); });
    if (result.outcome == WorkOutcome::kDone) {
      response.set_content(result.text, "application/octet-stream");
      return;
    }
    if (result.outcome == WorkOutcome::kFull) response.set_header("Retry-After", "1");
    Answer(response, StatusOf(result.outcome), result.text);
  }

  Answerer AnswererOf(QuestionKind kind, const std::string& body) const {
    const PageQuestion question = ParseQuestion(kind, body, set);
    return [this, kind, question](const WorkQueue::Cancel& cancelled) {
      switch (kind) {
        case QuestionKind::kRun:
          return RunFrame(set, question, cancelled);
        case QuestionKind::kHead:
          return HeadFrame(set, question, cancelled);
        case QuestionKind::kToken:
          return TokenFrame(set, question, cancelled);
        case QuestionKind::kChanged:
          return ChangedFrame(set, question, cancelled);
        case QuestionKind::kLens:
          return LensFrame(set, question, cancelled);
        case QuestionKind::kFeatures:
          break;
      }
      return FeaturesFrame(set, question, RunFeatures(set, question, cancelled));
    };
  }

  Answerer AnswererOf(FeatureQuestionKind kind, const std::string& body) const {
    const FeatureQuestion question = ParseFeatureQuestion(kind, body, set);
    return [this, kind, question](const WorkQueue::Cancel&) {
      return MakeFrame(kind == FeatureQuestionKind::kCard
                           ? CardAnswer(set, question.model, question.feature)
                           : FindAnswer(set, question),
                       {});
    };
  }

  Answerer AnswererOf(TraceQuestionKind kind, const std::string& body) {
    const TraceQuestion question = ParseTraceQuestion(kind, body, set);
    return [this, kind, question](const WorkQueue::Cancel& cancelled) {
      return AnswerTrace(kind, set, question, traces, cancelled);
    };
  }

  void Result(const Request& request, Response& response) {
    const std::string text = request.matches[1];
    std::size_t index = results.size();
    std::from_chars(text.data(), text.data() + text.size(), index);
    if (index >= results.size()) {
      Answer(response, 404, "there is no such result");
      return;
    }
    response.set_content(ToText(results[index].json, -1), kJsonType);
  }

  void Route() {
    server.set_default_headers(
        {{"Content-Security-Policy",
          "default-src 'none'; script-src 'self'; style-src 'self'; img-src data:; connect-src "
          "'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"},
         {"X-Content-Type-Options", "nosniff"},
         {"Referrer-Policy", "no-referrer"},
         {"Cross-Origin-Resource-Policy", "same-origin"},
         {"Cross-Origin-Opener-Policy", "same-origin"},
         {"Cache-Control", "no-store"}});
    server.set_pre_routing_handler([this](const Request& request, Response& response) {
      return Allowed(request, response) ? httplib::Server::HandlerResponse::Unhandled
                                        : httplib::Server::HandlerResponse::Handled;
    });
    server.Get("/", [](const Request&, Response& response) {
      response.set_content(std::string(PageHtml()), "text/html; charset=utf-8");
    });
    server.Get("/page.js", [](const Request&, Response& response) {
      response.set_content(std::string(PageScript()), "text/javascript; charset=utf-8");
    });
    server.Get("/page.css", [](const Request&, Response& response) {
      response.set_content(std::string(PageStyle()), "text/css; charset=utf-8");
    });
    server.Get("/api/overview", [this](const Request&, Response& response) {
      response.set_content(overview, kJsonType);
    });
    server.Get(R"(/api/results/(\d{1,6}))",
               [this](const Request& request, Response& response) { Result(request, response); });
    const auto post = [this](const char* path, auto kind) {
      server.Post(path, [this, kind](const Request& request, Response& response) {
        Ask(request, response, [&](const std::string& body) { return AnswererOf(kind, body); });
      });
    };
    post("/api/run", QuestionKind::kRun);
    post("/api/head", QuestionKind::kHead);
    post("/api/token", QuestionKind::kToken);
    post("/api/features", QuestionKind::kFeatures);
    post("/api/feature", FeatureQuestionKind::kCard);
    post("/api/find", FeatureQuestionKind::kFind);
    post("/api/changed", QuestionKind::kChanged);
    post("/api/lens", QuestionKind::kLens);
    post("/api/trace", TraceQuestionKind::kTrace);
    post("/api/carriers", TraceQuestionKind::kCarriers);
    post("/api/reasons", TraceQuestionKind::kReasons);
    server.set_exception_handler([](const Request&, Response& response, const std::exception_ptr&) {
      Answer(response, 500, "an error in the program itself");
    });
    server.set_error_handler([](const Request&, Response& response) {
      if (!response.body.empty()) return;
      Answer(response, response.status,
             response.status == 404 ? "there is nothing at this address"
                                    : "the request was not understood");
    });
  }

  const ModelSet set;
  const std::vector<ResultFile> results;
  const std::string overview;
  std::string host;
  int port = 0;
  TraceMemory traces;  // the work's thread alone touches it
  WorkQueue work;
  LimitedServer server;
};

PageServer::PageServer(ModelSet set, std::vector<ResultFile> results, ThreadPool* pool,
                       const ServerLimits& limits)
    : state_(std::make_unique<State>(std::move(set), std::move(results), pool, limits)) {}

PageServer::~PageServer() = default;

int PageServer::Bind(const std::string& host, int port) {
  state_->host = host;
  if (port == 0) {
    state_->port = state_->server.bind_to_any_port(host);
  } else {
    state_->port = state_->server.bind_to_port(host, port) ? port : -1;
  }
  if (state_->port <= 0) {
    Fail("cannot listen on {} port {}; is it taken? choose another with --port, or 0 for any", host,
         port);
  }
  state_->server.WidenAcceptQueue();
  return state_->port;
}

void PageServer::Listen() {
  if (!state_->server.listen_after_bind()) Fail("the server stopped: it cannot accept connections");
}

void PageServer::Stop() { state_->server.stop(); }

}  // namespace clearhead
