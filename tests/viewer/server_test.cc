// SPDX-License-Identifier: MIT
// The server from outside: what it answers, and what it refuses.
#include "viewer/server.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <thread>

#include "cli/small_model.h"
#include "core/file.h"
#include "support/temporary_folder.h"
#include "viewer/frame.h"
#include "viewer/small_features.h"

namespace clearhead {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

class ServerTest : public ::testing::Test {
 protected:
  // Short patience, so that the tests of slow clients are quick.
  explicit ServerTest(std::chrono::milliseconds patience = std::chrono::milliseconds(700),
                      bool features = false) {
    MakeSmallModel(folder_ / "dense");
    MakeSmallModel(folder_ / "gated", /*gated=*/true);
    ModelPlace dense{folder_ / "dense", "dense"};
    if (features) dense.features = MakeSmallFeatures(folder_ / "dense");
    ServerLimits limits;
    limits.connection.request = patience;
    limits.connection.idle = patience;
    limits.connection.request_bytes = 128 * 1024;
    limits.waiting_runs = 3;
    limits.threads = 8;
    server_ = std::make_unique<PageServer>(
        LoadModelSet({dense, {folder_ / "gated", "gated"}}),
        std::vector<ResultFile>{{"a.json", "clearhead.circuit/1", Json{{"heads", Json::array()}}}},
        CurrentPool(), limits);
    port_ = server_->Bind("127.0.0.1", 0);
    thread_ = std::thread([this] { server_->Listen(); });
  }
  ~ServerTest() override {
    server_->Stop();
    thread_.join();
  }

  int Connect() const {
    const int socket = ::socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in address{.sin_family = AF_INET,
                        .sin_port = htons(static_cast<std::uint16_t>(port_))};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(::connect(socket, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
    return socket;
  }

  // Everything until the server closes the connection.
  static std::string ReadAll(int socket) {
    std::string answer, piece(1 << 16, '\0');
    while (true) {
      pollfd entry{.fd = socket, .events = POLLIN, .revents = 0};
      if (::poll(&entry, 1, 60'000) <= 0) break;
      const ssize_t got = ::recv(socket, piece.data(), piece.size(), 0);
      if (got <= 0) break;
      answer.append(piece, 0, static_cast<std::size_t>(got));
    }
    ::close(socket);
    return answer;
  }

  std::string Raw(const std::string& request) const {
    const int socket = Connect();
    ::send(socket, request.data(), request.size(), MSG_NOSIGNAL);
    return ReadAll(socket);
  }

  std::string Host() const { return fmt::format("127.0.0.1:{}", port_); }

  std::string Get(const std::string& path, const std::string& headers = "") const {
    return Raw(fmt::format("GET {} HTTP/1.1\r\nHost: {}\r\n{}Connection: close\r\n\r\n", path,
                           Host(), headers));
  }
  std::string Post(const std::string& path, const std::string& body,
                   const std::string& headers = "Content-Type: application/json\r\n") const {
    return Raw(fmt::format(
        "POST {} HTTP/1.1\r\nHost: {}\r\n{}Content-Length: {}\r\nConnection: close\r\n\r\n{}", path,
        Host(), headers, body.size(), body));
  }
  static int Status(const std::string& answer) {
    return answer.starts_with("HTTP/1.1 ") ? std::atoi(answer.c_str() + 9) : 0;
  }
  static std::string Body(const std::string& answer) {
    const std::size_t at = answer.find("\r\n\r\n");
    return at == std::string::npos ? std::string() : answer.substr(at + 4);
  }

  TemporaryFolder folder_;
  std::unique_ptr<PageServer> server_;
  int port_ = 0;
  std::thread thread_;
};

TEST_F(ServerTest, AnswersThePageAndItsQuestions) {
  const std::string page = Get("/");
  EXPECT_EQ(Status(page), 200);
  EXPECT_THAT(page, HasSubstr("Content-Security-Policy: default-src 'none'"));
  EXPECT_THAT(page, HasSubstr("nosniff"));
  EXPECT_THAT(Body(page), StartsWith("<!doctype html>"));
  const Json overview = ParseJson(Body(Get("/api/overview")), "overview");
  EXPECT_EQ(overview["models"].size(), 2u);
  EXPECT_EQ(overview["results"][0]["name"], "a.json");
  EXPECT_EQ(ParseJson(Body(Get("/api/results/0")), "result"), Json({{"heads", Json::array()}}));
  const ParsedFrame run = ParseFrame(Body(Post("/api/run", R"({"prompt":"The cat"})")));
  EXPECT_EQ(run.header["models"].size(), 2u);
  const std::string head = Post("/api/head", R"({"prompt":"The cat","head":"L0H0"})");
  EXPECT_EQ(ParseFrame(Body(head)).header["head"], "L0H0");
  const std::string token = Post("/api/token", R"({"prompt":"The cat","position":0})");
  EXPECT_EQ(ParseFrame(Body(token)).header["position"], 0);
}

class FeatureServerTest : public ServerTest {
 protected:
  FeatureServerTest() : ServerTest(std::chrono::milliseconds(700), /*features=*/true) {}
};

TEST_F(FeatureServerTest, AnswersQuestionsAboutFeaturesAndTraces) {
  const auto ask = [&](const std::string& path, const std::string& body) {
    const std::string answer = Post(path, body);
    EXPECT_EQ(Status(answer), 200) << path << Body(answer).substr(0, 200);
    return ParseFrame(Body(answer)).header;
  };
  const std::string prompt = R"("prompt":"The cat sat on the mat")";
  EXPECT_EQ(ask("/api/features", "{" + prompt + "}")["models"].size(), 2u);
  EXPECT_EQ(ask("/api/feature", R"({"feature":"L1F2"})")["feature"], "L1F2");
  EXPECT_EQ(ask("/api/find", R"({"text":"cat"})")["schema"], "clearhead.features-found.1");
  const Json trace = ask("/api/trace", "{" + prompt + R"(,"model":0})");
  EXPECT_FALSE(trace["groups"].empty());
  const Json edge = ask("/api/carriers", "{" + prompt + R"(,"from":"group 0","to":"logit 0"})");
  EXPECT_EQ(edge["key"], trace["groups"][0]["position"]);
  EXPECT_EQ(ask("/api/reasons", "{" + prompt + R"(,"head":"L1H0","query":3,"key":1})")["key"], 1);
  const Json changed = ask(
      "/api/changed",
      "{" + prompt +
          R"(,"cut":[{"head":"L1H0","query":3,"key":1}],"features":[{"feature":"L0F1","scale":2}]})");
  EXPECT_NE(changed["before"], changed["after"]);
  const Json lens = ask("/api/lens", "{" + prompt + R"(,"model":1,"position":2})");
  EXPECT_EQ(lens["stream"][0].size(), lens["tokens"].size());
  // What is wrong is said in one line, and is the asker's fault.
  const std::string folder = folder_.path().string();
  for (const auto& [path, fields] : std::vector<std::pair<std::string, std::string>>{
           {"/api/trace", R"(,"model":1)"},  // has no features
           {"/api/trace", R"(,"positions":[1])"},
           {"/api/carriers", R"(,"from":"token@77","to":"logit 0")"},
           {"/api/carriers", R"(,"from":"group 4000","to":"logit 0")"},
           {"/api/carriers", R"(,"from":"L0F99@1","to":"logit 0")"},
           {"/api/carriers", R"(,"from":["token@1"],"to":"logit 0")"},
           {"/api/reasons", R"(,"head":"L1H0","query":99,"key":1)"},
           {"/api/reasons", R"(,"head":"L8H0","query":2,"key":1)"},
           {"/api/changed", R"(,"features":[{"feature":"L0F9999","set":1}])"},
           {"/api/changed", R"(,"cut":[{"head":"L1H0","query":1,"key":3}])"},
           {"/api/lens", R"(,"position":77)"},
           {"/api/lens", R"(,"target":"no such token")"},
           {"/api/features", R"(,"strongest":0)"}}) {
    const std::string answer = Post(path, "{" + prompt + fields + "}");
    EXPECT_EQ(Status(answer), 400) << path << fields;
    const std::string line = ParseJson(Body(answer), "answer")["error"].get<std::string>();
    EXPECT_FALSE(line.empty());
    EXPECT_EQ(line.find('\n'), std::string::npos) << line;
    EXPECT_EQ(line.find(folder), std::string::npos) << line;
  }
}

TEST_F(ServerTest, RefusesOtherHostsAndSites) {
  const auto with_host = [&](const std::string& host) {
    return Status(
        Raw("GET /api/overview HTTP/1.1\r\nHost: " + host + "\r\nConnection: close\r\n\r\n"));
  };
  EXPECT_EQ(with_host(Host()), 200);
  EXPECT_EQ(with_host(fmt::format("localhost:{}", port_)), 200);
  EXPECT_EQ(with_host(fmt::format("evil.example:{}", port_)), 403);
  EXPECT_EQ(with_host("127.0.0.1:1"), 403);
  EXPECT_EQ(with_host("127.0.0.1"), 403);
  EXPECT_EQ(with_host(Host() + "\r\nHost: evil.example"), 403);
  EXPECT_EQ(Status(Raw("GET / HTTP/1.1\r\nConnection: close\r\n\r\n")), 403);
  const std::string json = "Content-Type: application/json\r\n";
  const std::string body = R"({"prompt":"The"})";
  EXPECT_EQ(Status(Post("/api/run", body, json + "Origin: http://" + Host() + "\r\n")), 200);
  EXPECT_EQ(Status(Post("/api/run", body, json + "Origin: http://evil.example\r\n")), 403);
  EXPECT_EQ(Status(Post("/api/run", body, json + "Origin: null\r\n")), 403);
  EXPECT_EQ(Status(Post("/api/run", body, json + "Sec-Fetch-Site: cross-site\r\n")), 403);
  EXPECT_EQ(Status(Post("/api/run", body, "Content-Type: text/plain\r\n")), 415);
}

TEST_F(ServerTest, NothingNamesAFile) {
  for (const char* path : {"/../etc/passwd", "/..%2f..%2fetc/passwd", "//etc/passwd",
                           "/api/results/../../x", "/api/results/1", "/api/results/99999999999",
                           "/api/results/-1", "/page.js/..", "/%00", "/api/run"}) {
    const std::string answer = Get(path);
    EXPECT_EQ(Status(answer), 404) << path << answer.substr(0, 200);
    EXPECT_EQ(answer.find("root:"), std::string::npos);
  }
  const std::string folder = folder_.path().string();
  for (const std::string& answer :
       {Get("/"), Get("/api/overview"), Post("/api/run", R"({"prompt":"The cat"})"),
        Post("/api/run", R"({"prompt":""})"), Post("/api/run", "{"), Get("/no")}) {
    EXPECT_EQ(answer.find(folder), std::string::npos);
  }
}

TEST_F(ServerTest, SurvivesWhatIsNotHttpOrJson) {
  std::string deep(100'000, '[');
  EXPECT_EQ(Status(Post("/api/run", deep)), 400);
  EXPECT_EQ(Status(Post("/api/run", "\xff\xfe{}")), 400);
  EXPECT_EQ(Status(Post("/api/run", R"({"prompt":"a","prompt":"b"})")), 400);
  EXPECT_EQ(Status(Post("/api/run", R"({"prompt":"\ud800"})")), 400);
  Raw("\r\n\r\n");
  Raw(std::string(1000, '\0'));
  Raw("GET / HTTP/9.9\r\n\r\n");
  Raw("BREW /pot HTTP/1.1\r\nHost: " + Host() + "\r\n\r\n");
  Raw("GET " + std::string(100'000, 'a') + " HTTP/1.1\r\n\r\n");
  Raw("GET / HTTP/1.1\r\nHost: " + Host() +
      "\r\nRange: bytes=0-1,2-3,-5\r\nConnection: close\r\n\r\n");
  Raw("POST /api/run HTTP/1.1\r\nHost: " + Host() + "\r\nContent-Length: -5\r\n\r\nx");
  Raw("POST /api/run HTTP/1.1\r\nHost: " + Host() +
      "\r\nContent-Length: 99999999999999999999\r\n\r\nx");
  Raw("POST /api/run HTTP/1.1\r\nHost: " + Host() +
      "\r\nTransfer-Encoding: chunked\r\n\r\nfffffffffffffff\r\nx");
  std::string many = "GET / HTTP/1.1\r\nHost: " + Host() + "\r\n";
  for (int i = 0; i < 20'000; ++i) many += fmt::format("X-{}: y\r\n", i);
  EXPECT_NE(Status(Raw(many + "\r\n")), 200);
  EXPECT_NE(Status(Post("/api/run", std::string(1 << 20, ' '))), 200);
  EXPECT_EQ(Status(Get("/api/overview")), 200);
}

TEST_F(ServerTest, SlowClientsAreCutOff) {
  // More of them than threads, each sending a byte now and then: all are gone in a moment.
  std::vector<int> sockets;
  for (int i = 0; i < 12; ++i) sockets.push_back(Connect());
  const auto began = std::chrono::steady_clock::now();
  std::atomic<bool> stop = false;
  std::thread drip([&] {
    while (!stop) {
      for (const int socket : sockets) ::send(socket, "G", 1, MSG_NOSIGNAL);
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
  });
  EXPECT_EQ(Status(Get("/api/overview")), 200);
  EXPECT_LT(std::chrono::steady_clock::now() - began, std::chrono::seconds(10));
  stop = true;
  drip.join();
  for (const int socket : sockets) ::close(socket);
}

// On a loaded machine the last of a crowd takes seconds to get its request through.
class CrowdTest : public ServerTest {
 protected:
  CrowdTest() : ServerTest(std::chrono::seconds(20)) {}
};

TEST_F(CrowdTest, TwoHundredAtOnceAreAnsweredOrRefusedCleanly) {
  std::vector<std::thread> threads;
  std::atomic<int> done = 0, busy = 0, other = 0;
  for (int i = 0; i < 200; ++i) {
    threads.emplace_back([&] {
      const int status = Status(Post("/api/run", R"({"prompt":"The cat sat on the mat"})"));
      ++(status == 200 ? done : status == 503 ? busy : other);
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_GT(done, 0);
  EXPECT_EQ(other, 0) << done << " answered, " << busy << " refused";
  EXPECT_EQ(Status(Get("/api/overview")), 200);
}

TEST(HostTest, AddressesAreOursNamesAreNot) {
  EXPECT_TRUE(IsOurHost("127.0.0.1:8042", "127.0.0.1", 8042));
  EXPECT_TRUE(IsOurHost("localhost:8042", "127.0.0.1", 8042));
  EXPECT_TRUE(IsOurHost("[::1]:8042", "::1", 8042));
  EXPECT_TRUE(IsOurHost("192.168.1.5:8042", "0.0.0.0", 8042));
  EXPECT_TRUE(IsOurHost("box.lan:8042", "box.lan", 8042));
  EXPECT_FALSE(IsOurHost("box.lan:8042", "127.0.0.1", 8042));
  EXPECT_FALSE(IsOurHost("127.0.0.1.evil.example:8042", "127.0.0.1", 8042));
  EXPECT_FALSE(IsOurHost("localhost:8043", "127.0.0.1", 8042));
  EXPECT_FALSE(IsOurHost("", "127.0.0.1", 8042));
}

}  // namespace
}  // namespace clearhead
