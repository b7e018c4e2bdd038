// SPDX-License-Identifier: MIT
// serve and report as a user starts them. What they show is tested in tests/viewer and tests/web.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include "cli/program.h"
#include "cli/small_model.h"

namespace clearhead {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class PageTest : public ::testing::Test {
 protected:
  PageTest() {
    MakeSmallModel(folder_ / "dense");
    MakeSmallModel(folder_ / "gated", /*gated=*/true);
  }
  std::string At(const std::string& name) const { return (folder_ / name).string(); }

  TemporaryFolder folder_;
};

TEST_F(PageTest, ReportIsOneFileWithoutPathsOrOutsideAddresses) {
  if (!CLEARHEAD_WEB) GTEST_SKIP() << "built without the page";
  const Json json = SucceedJson({"report", At("dense"), At("gated"), "--prompt",
                                 "The </script><b>cat", "--out", At("report.html")});
  const std::string page = ReadFile(folder_ / "report.html");
  EXPECT_EQ(json["bytes"], page.size());
  EXPECT_THAT(page, HasSubstr("default-src 'none'"));
  EXPECT_THAT(page, Not(HasSubstr("src=\"/")));
  EXPECT_THAT(page, Not(HasSubstr("href=\"/")));
  EXPECT_THAT(page, Not(HasSubstr("</script><b>")));
  EXPECT_EQ(page.find(folder_.path().string()), std::string::npos);
  // The same again: nothing in it depends on the time or the place.
  Succeed({"report", At("dense"), At("gated"), "--prompt", "The </script><b>cat", "--out",
           At("again.html")});
  EXPECT_EQ(ReadFile(folder_ / "again.html"), page);
}

TEST_F(PageTest, OneModelIsEnough) {
  if (!CLEARHEAD_WEB) GTEST_SKIP() << "built without the page";
  EXPECT_THAT(Succeed({"report", At("dense"), "--prompt", "The cat", "--out", At("one.html")}).out,
              HasSubstr("1 prompt,"));
}

TEST_F(PageTest, WithoutNamesTheLargestShippedPairIsShown) {
  if (!CLEARHEAD_WEB) GTEST_SKIP() << "built without the page";
  const auto save = [&](const char* name, std::int64_t layers, AttentionKind attention) {
    const Tokenizer tokenizer = Tokenizer::Load(folder_ / "dense");
    ModelConfig config = SmallConfig(tokenizer);
    config.layers = layers;
    config.attention = attention;
    SaveModel(LivelyModel(config, 5), folder_ / name);
    tokenizer.Save(folder_ / name);
  };
  save("z-deep", 3, AttentionKind::kSoftmax);
  save("z-deep-sparse", 3, AttentionKind::kGated);
  save("z-deeper", 4, AttentionKind::kSoftmax);  // without a sparse twin
  ::setenv("CLEARHEAD_MODELS", folder_.path().c_str(), 1);
  const Json shown = SucceedJson({"report", "--prompt", "The", "--out", At("r.html")})["models"];
  // Models that really ship may be larger.
  std::int64_t largest = 0;
  const Json info = SucceedJson({"info"});
  for (const Json& name : info["models"]) {
    const Json model = SucceedJson({"info", name.get<std::string>()})["model"];
    if (model["attention"] != "gated") continue;
    largest = std::max(largest, model["parameters"].get<std::int64_t>());
  }
  const Json first = SucceedJson({"info", shown[0].get<std::string>()})["model"];
  const Json second = SucceedJson({"info", shown[1].get<std::string>()})["model"];
  ::unsetenv("CLEARHEAD_MODELS");
  EXPECT_EQ(second["parameters"], largest);
  EXPECT_EQ(first["attention"], "softmax");
  EXPECT_EQ(second["attention"], "gated");
  EXPECT_EQ(second["layers"], first["layers"]);
}

TEST_F(PageTest, RefusesInOneLine) {
  if (!CLEARHEAD_WEB) GTEST_SKIP() << "built without the page";
  const std::string out = At("never.html");
  ExpectFailure({"report", At("dense"), "--prompt", "", "--out", out}, 1, {"empty"});
  ExpectFailure({"report", At("dense"), At("gated"), At("dense"), "--prompt", "a", "--out", out}, 2,
                {"the page shows two"});
  ExpectFailure({"report", At("absent"), "--prompt", "a", "--out", out}, 1, {"no model"});
  ExpectFailure({"report", At("dense"), "--prompt", "a", "--results", At("no"), "--out", out}, 1,
                {"is not a folder"});
  ExpectFailure({"report", At("dense")}, 2, {"--out"});
  ExpectFailure({"serve", At("dense"), "--port", "70000"}, 2, {"--port"});
  ExpectFailure({"serve", At("dense"), "--host", "256.1.1.1", "--port", "0"}, 1, {"cannot listen"});
  EXPECT_FALSE(std::filesystem::exists(out));
}

// A server as a user starts it.
class RunningServer {
 public:
  RunningServer(const std::string& model, const std::string& threads, const std::string& out) {
    std::vector<std::string> words = {CLEARHEAD_PROGRAM, "serve", model,   "--port", "0",
                                      "--threads",       threads, "--json"};
    std::vector<char*> argv;
    for (std::string& word : words) argv.push_back(word.data());
    argv.push_back(nullptr);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, 1, out.c_str(), O_WRONLY | O_CREAT, 0600);
    EXPECT_EQ(::posix_spawn(&process_, CLEARHEAD_PROGRAM, &actions, nullptr, argv.data(), environ),
              0);
    posix_spawn_file_actions_destroy(&actions);
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (!(std::filesystem::exists(out) && ReadFile(out).ends_with("}\n")) &&
           std::chrono::steady_clock::now() < deadline) {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    port_ = ParseJson(ReadFile(out), "stdout")["port"].get<int>();
  }
  ~RunningServer() {
    ::kill(process_, SIGKILL);
    ::waitpid(process_, nullptr, 0);
  }

  // "GET /path" or "POST /path"; the whole answer.
  std::string Ask(const std::string& what, const std::string& body = "") const {
    const int socket = ::socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in address{.sin_family = AF_INET,
                        .sin_port = htons(static_cast<std::uint16_t>(port_))};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(::connect(socket, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
    const std::string request = fmt::format(
        "{} HTTP/1.1\r\nHost: 127.0.0.1:{}\r\nContent-Type: application/json\r\n"
        "Content-Length: {}\r\nConnection: close\r\n\r\n{}",
        what, port_, body.size(), body);
    ::send(socket, request.data(), request.size(), MSG_NOSIGNAL);
    std::string answer(1 << 20, '\0');
    const ssize_t got = ::recv(socket, answer.data(), answer.size(), MSG_WAITALL);
    ::close(socket);
    answer.resize(got < 0 ? 0 : static_cast<std::size_t>(got));
    return answer;
  }

  std::ptrdiff_t Threads() const {
    const std::filesystem::directory_iterator tasks("/proc/" + std::to_string(process_) + "/task");
    return std::distance(begin(tasks), end(tasks));
  }

 private:
  pid_t process_ = -1;
  int port_ = 0;
};

// The models run on a thread of the server's own. Once it started as many as there are cores,
// whatever was asked for.
TEST_F(PageTest, ServeUsesTheThreadsThatAreAskedFor) {
  std::vector<std::ptrdiff_t> counts;
  for (const char* threads : {"1", "5"}) {
    const RunningServer server(At("dense"), threads, At(fmt::format("{}.json", threads)));
    EXPECT_THAT(server.Ask("GET /api/overview"), ::testing::StartsWith("HTTP/1.1 200"));
    counts.push_back(server.Threads());
    EXPECT_THAT(server.Ask("POST /api/run", R"({"prompt":"The cat"})"),
                ::testing::StartsWith("HTTP/1.1 200"));
    EXPECT_EQ(server.Threads(), counts.back()) << "--threads " << threads;
  }
  EXPECT_EQ(counts[1], counts[0] + 4);
}

TEST_F(PageTest, ATakenPortIsNotShared) {
  const int socket = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{.sin_family = AF_INET};
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  ASSERT_EQ(::bind(socket, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
  ASSERT_EQ(::listen(socket, 1), 0);
  socklen_t size = sizeof(address);
  ASSERT_EQ(::getsockname(socket, reinterpret_cast<sockaddr*>(&address), &size), 0);
  ExpectFailure({"serve", At("dense"), "--port", std::to_string(ntohs(address.sin_port))}, 1,
                {"cannot listen", "--port"});
  ::close(socket);
}

}  // namespace
}  // namespace clearhead
