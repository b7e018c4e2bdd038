// SPDX-License-Identifier: MIT
// The program starts itself once more (main.cc); `top` and `pkill` must still see its name.
#include <gtest/gtest.h>

#include "cli/program.h"
#include "cli/small_model.h"

namespace clearhead {
namespace {

// /proc files have no size, so ReadFile reads nothing.
std::string ReadProc(pid_t process, const char* name) {
  std::string content(65536, '\0');
  const std::string path = "/proc/" + std::to_string(process) + "/" + name;
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  const ssize_t n = file < 0 ? 0 : ::read(file, content.data(), content.size());
  if (file >= 0) ::close(file);
  content.resize(n < 0 ? 0 : static_cast<std::size_t>(n));
  return content;
}

TEST(ProcessName, IsTheProgramsAfterItRestarted) {
  const TemporaryFolder folder;
  MakeSmallModel(folder / "m");
  int in[2];
  ASSERT_EQ(::pipe2(in, O_CLOEXEC), 0);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, in[0], 0);  // it waits for its input
  posix_spawn_file_actions_addopen(&actions, 1, "/dev/null", O_WRONLY, 0);
  std::string program = CLEARHEAD_PROGRAM, model = folder / "m";
  std::string words[] = {program, "tokenize", model, "-"};
  char* argv[] = {words[0].data(), words[1].data(), words[2].data(), words[3].data(), nullptr};
  char* environment[] = {nullptr};  // no wait policy: only then it restarts
  pid_t process = -1;
  ASSERT_EQ(::posix_spawn(&process, program.c_str(), &actions, nullptr, argv, environment), 0);
  posix_spawn_file_actions_destroy(&actions);
  bool restarted = false;
  for (int i = 0; i < 3000 && !restarted; ++i) {
    restarted = ReadProc(process, "environ").find("GOMP_SPINCOUNT") != std::string::npos;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  EXPECT_TRUE(restarted);
  EXPECT_EQ(ReadProc(process, "comm"), "clearhead\n");
  ::close(in[1]);
  int status = 0;
  ::waitpid(process, &status, 0);
  ::close(in[0]);
  EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace clearhead
