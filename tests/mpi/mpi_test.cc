// SPDX-License-Identifier: MIT
// The program as ranks of mpirun: the same run as by one, one voice, ends that leave nothing
// broken.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>

#include <chrono>
#include <cmath>
#include <filesystem>
#include <random>
#include <string>
#include <thread>

#include "core/file.h"
#include "core/json.h"
#include "support/temporary_folder.h"
#include "train/checkpoint.h"
#include "train/metrics_log.h"

namespace clearhead {
namespace {
namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr std::string_view kMpiexec = CLEARHEAD_MPIEXEC;
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kSanitized = true;
#else
constexpr bool kSanitized = false;
#endif

struct ShellRun {
  int code = -1;
  std::string out, err;
};

// A line for the shell, in `folder`, for at most a minute.
ShellRun Shell(const fs::path& folder, const std::string& line) {
  const std::string whole =
      fmt::format("cd '{}' && {{ {} ; }} >out.txt 2>err.txt </dev/null", folder.string(), line);
  const int status = std::system(whole.c_str());
  return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, ReadFile(folder / "out.txt"),
          ReadFile(folder / "err.txt")};
}

// $RANK is the rank's number there. Open MPI is asked for more ranks than cores and to run as root
// by its environment, which others do not mind.
std::string OnRanks(int ranks, const std::string& arguments) {
  return fmt::format(
      "OMPI_MCA_rmaps_base_oversubscribe=1 PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe "
      "ASAN_OPTIONS=${{ASAN_OPTIONS:-fast_unwind_on_malloc=0}} "
      "LSAN_OPTIONS=print_suppressions=0:suppressions=" CLEARHEAD_LSAN_SUPPRESSIONS
      " "
      "OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 timeout 60 {} -n {} sh -c '"
      "RANK=${{OMPI_COMM_WORLD_RANK:-$PMI_RANK}}; echo $$ > pid.$RANK; exec {} {}'",
      kMpiexec, ranks, CLEARHEAD_PROGRAM, arguments);
}

const std::string kShape =
    "--layers 2 --heads 2 --width 32 --vocab 280 --context 24 --batch 6 --seed 1 --threads 1 "
    "--precision fp32";

class Mpi : public ::testing::Test {
 protected:
  void SetUp() override {
    if (kMpiexec.empty()) GTEST_SKIP() << "this build has no MPI: runs of several ranks not tested";
    std::string text;
    for (int i = 0; i < 3000; ++i) text += fmt::format("{} and {} is {}\n", i % 7, i % 5, i % 12);
    WriteFile(folder_ / "text.txt", text);
    WriteFile(folder_ / "valid.txt", text.substr(0, 4000));
  }

  ShellRun Run(int ranks, const std::string& arguments) {
    const ShellRun run = Shell(
        folder_.path(), ranks == 1 ? CLEARHEAD_PROGRAM " " + arguments : OnRanks(ranks, arguments));
    EXPECT_EQ(run.code, 0) << run.err;
    return run;
  }
  std::string Train(const std::string& out, int steps) const {
    return fmt::format("train --text text.txt --valid valid.txt {} --steps {} --out {}", kShape,
                       steps, out);
  }
  std::vector<double> Losses(const std::string& out, const char* name = "loss") const {
    std::vector<double> losses;
    for (const Json& line : ReadMetrics(folder_ / out / "metrics.jsonl")) {
      losses.push_back(line[name].get<double>());
    }
    return losses;
  }
  void ExpectAlike(const std::string& a, const std::string& b, double within = 1e-4) const {
    const std::vector<double> of_a = Losses(a), of_b = Losses(b);
    ASSERT_EQ(of_a.size(), of_b.size());
    for (std::size_t i = 0; i < of_a.size(); ++i) EXPECT_NEAR(of_a[i], of_b[i], within) << i;
  }
  // Starts a run in the background and waits until `lines` steps are logged in `out`.
  std::thread Begin(int ranks, const std::string& arguments, const std::string& out,
                    std::size_t lines, ShellRun* result) {
    std::thread thread([=, this] { *result = Shell(folder_.path(), OnRanks(ranks, arguments)); });
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(50);
    const fs::path metrics = folder_ / out / "metrics.jsonl";
    while (!fs::exists(metrics) || ReadMetrics(metrics).size() < lines) {
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
      if (std::chrono::steady_clock::now() > deadline) break;
    }
    return thread;
  }
  pid_t RankProcess(int rank) const {
    return static_cast<pid_t>(std::stol(ReadFile(folder_ / fmt::format("pid.{}", rank))));
  }

  TemporaryFolder folder_;
};

TEST_F(Mpi, RanksMakeTheRunOfOne) {
  Run(1, Train("one", 12));
  for (const int ranks : {2, 3}) {
    const std::string out = fmt::format("of{}", ranks);
    const ShellRun run = Run(ranks, Train(out, 12));
    EXPECT_EQ(std::count(run.out.begin(), run.out.end(), '\n'), 1) << run.out;  // one voice
    EXPECT_EQ(run.err, "");
    ExpectAlike(out, "one");
  }
  Run(2, Train("again", 12));
  EXPECT_EQ(ReadFile(folder_ / "again/model.safetensors"),
            ReadFile(folder_ / "of2/model.safetensors"));

  // The same windows, whoever runs them: the same bits.
  const std::string eval = "eval one --text text.txt --tokens 3000 --threads 1 --json";
  const Json alone = Json::parse(Run(1, eval).out), shared = Json::parse(Run(3, eval).out);
  EXPECT_EQ(alone["loss"], shared["loss"]);
  EXPECT_EQ(alone["tokens"], shared["tokens"]);
}

// Windows of a text and prompts of a task are dealt out; what is found has the bits of one rank's.
TEST_F(Mpi, WhatIsMeasuredIsThatOfOne) {
  // Leaks are looked for in the other tests: whole stacks of every allocation would take minutes.
  ::setenv("ASAN_OPTIONS", "detect_leaks=0", 1);
  const auto without_times = [](const std::string& out) {
    Json json = Json::parse(out);
    for (Json& set : json["sets"]) set.erase("seconds");
    return json;
  };
  const std::string heads =
      "heads tale tale-sparse --text text.txt --context 50 --tokens 600 --json";
  const std::string eval =
      "features eval tale tale-features --text text.txt --context 40 --tokens 9000 --json";
  const std::string check =
      "features index tale tale-features --check 20 --text text.txt --tokens 9000 --json";
  const auto circuit = [](int ranks) {
    return fmt::format("circuit addition --task digits --n 10 --level both --random 2 --out c{0}",
                       ranks);
  };
  // Features of a shipped model take ten minutes with a sanitizer.
  const auto of_features = [&](int ranks) {
    return kSanitized ? std::pair(Json(), std::string())
                      : std::pair(without_times(Run(ranks, eval).out), Run(ranks, check).out);
  };
  const ShellRun heads_1 = Run(1, heads);
  const auto features_1 = of_features(1);
  Run(1, circuit(1));
  for (const int ranks : {2, 3}) {
    SCOPED_TRACE(ranks);
    const ShellRun run = Run(ranks, heads);
    EXPECT_EQ(run.out, heads_1.out);
    EXPECT_EQ(run.err, "");
    EXPECT_EQ(of_features(ranks), features_1);
    Run(ranks, circuit(ranks));
    for (const char* file : {"circuit.json", "graph.json"}) {
      EXPECT_EQ(ReadFile(folder_ / fmt::format("c{}", ranks) / file),
                ReadFile(folder_ / "c1" / file))
          << file;
    }
  }
  const ShellRun refused =
      Shell(folder_.path(), OnRanks(2,
                                    "circuit addition --task digits --n 4 --ablation zero "
                                    "--rank both --out none"));
  EXPECT_NE(refused.code, 0);
  EXPECT_NE(refused.code, 124);
  EXPECT_THAT(refused.err, HasSubstr("clearhead: --rank both needs --ablation resample"));
  EXPECT_EQ(refused.err.find("clearhead: "), refused.err.rfind("clearhead: ")) << refused.err;
}

TEST_F(Mpi, SparsifyAndFeaturesToo) {
  Run(1, Train("model", 30));
  for (const int ranks : {1, 2}) {
    Run(ranks, fmt::format("sparsify model --text text.txt --valid valid.txt --steps 8 --batch 5 "
                           "--context 24 --tolerance 3 --threads 1 --precision fp32 --out s{}",
                           ranks));
  }
  ExpectAlike("s2", "s1");
  EXPECT_TRUE(fs::exists(folder_ / "s2/model.safetensors"));
  EXPECT_FALSE(fs::exists(folder_ / "s2/best"));
  for (const char* rule : {"jumprelu", "batchtopk"}) {
    for (const int ranks : {1, 3}) {
      Run(ranks, fmt::format("features train model --text text.txt --valid valid.txt --steps 8 "
                             "--batch 260 --shuffle 3 --context 20 --width 48 --l0 6 --dead-after "
                             "400 --activation {} --threads 1 --out {}{}",
                             rule, rule, ranks));
    }
    ExpectAlike(fmt::format("{}3", rule), fmt::format("{}1", rule));
    EXPECT_TRUE(fs::exists(folder_ / fmt::format("{}3/config.yaml", rule)));
  }
}

// The moments of 38 million parameters take 302 MB: with two ranks each has half of them, and as
// many sequences as the one had.
TEST_F(Mpi, MomentsAreHalvedInMemory) {
  if (kSanitized) GTEST_SKIP() << "the sanitizer's own memory is measured with it";
  std::vector<double> peaks;
  double parameters = 0.0;
  for (const int ranks : {1, 2}) {
    const Json run = Json::parse(
        Run(ranks,
            fmt::format("train --text text.txt --layers 3 --heads 4 --width 1024 --vocab 280 "
                        "--context 8 --batch {0} --steps 2 --threads 1 --out of{0} --json",
                        ranks))
            .out);
    parameters = run["parameters"].get<double>();
    ASSERT_EQ(run["peak_memory"].size(), static_cast<std::size_t>(ranks));
    for (const Json& peak : run["peak_memory"]) peaks.push_back(peak.get<double>());
  }
  const double half_of_moments = 4.0 * parameters;
  for (const std::size_t rank : {1, 2}) {
    const double saved = peaks[0] - peaks[rank];
    RecordProperty(fmt::format("saved_by_rank_{}_MB", rank - 1),
                   fmt::format("{:.1f}", saved / 1e6));
    // Less MPI itself and the buckets on their way: at most four of 16 MB, half of each received.
    EXPECT_GT(saved, half_of_moments - 70e6) << half_of_moments / 1e6;
    EXPECT_LT(saved, half_of_moments + 20e6) << half_of_moments / 1e6;
  }
}

TEST_F(Mpi, AStopIsEverybodysAndOthersGoOn) {
  Run(1, Train("one", 60));
  ShellRun stopped;
  // Only one of them is told.
  std::thread thread = Begin(2, Train("some", 60), "some", 4, &stopped);
  ::kill(RankProcess(1), SIGUSR1);
  thread.join();
  EXPECT_NE(stopped.code, 0);
  EXPECT_THAT(stopped.err, HasSubstr("clearhead: interrupted at step"));
  EXPECT_LT(Losses("some").size(), 60u);
  Run(3, Train("some", 60) + " --resume");
  ExpectAlike("some", "one", 1e-3);
}

// Ten times, at moments that differ from run to run, with a checkpoint every third step: two and
// three ranks in turn go on with what the last ones left.
TEST_F(Mpi, AKilledRankEndsTheRunAndLeavesACheckpoint) {
  constexpr int kKills = 10, kEvery = 3;
  const std::string train = Train("run", 700) + fmt::format(" --checkpoint-every {}", kEvery);
  std::mt19937 random(std::random_device{}());
  const auto below = [&](int end) {
    return static_cast<int>(random() % static_cast<unsigned>(end));
  };
  std::size_t begun = 0;  // steps that were logged
  for (int kill = 0; kill < kKills; ++kill) {
    const int ranks = 2 + kill % 2, victim = below(ranks), steps = 4 + below(40);
    SCOPED_TRACE(fmt::format("kill {}: rank {} of {} after {} steps", kill, victim, ranks, steps));
    ShellRun killed;
    std::thread thread = Begin(ranks, train + (kill == 0 ? "" : " --resume"), "run",
                               begun + static_cast<std::size_t>(steps), &killed);
    std::this_thread::sleep_for(std::chrono::microseconds(below(20000)));
    const auto start = std::chrono::steady_clock::now();
    ::kill(RankProcess(victim), SIGKILL);
    thread.join();
    EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(30));
    EXPECT_NE(killed.code, 0) << killed.err;
    EXPECT_NE(killed.code, 124) << "the others waited";
    EXPECT_FALSE(fs::exists(folder_ / "run/model.safetensors"));
    begun = ReadMetrics(folder_ / "run/metrics.jsonl").size();
    const auto checkpoint = FindCheckpoint(folder_ / "run/checkpoint");
    ASSERT_TRUE(checkpoint);
    const std::string name = checkpoint->stem().string();  // checkpoint-123
    EXPECT_GE(std::stoul(name.substr(name.find('-') + 1)) + kEvery, begun) << "one was lost";
  }
  Run(3, train + " --resume");
  Run(1, Train("one", 700));
  // Hundreds of steps later rounding has grown to differences of its own.
  const std::vector<double> of_run = Losses("run"), of_one = Losses("one");
  ASSERT_EQ(of_run.size(), 700u);
  for (std::size_t i = 0; i < 60; ++i) EXPECT_NEAR(of_run[i], of_one[i], 1e-3) << i;
}

TEST_F(Mpi, OneMessageNamesTheRankThatFailed) {
  const ShellRun run = Shell(
      folder_.path(), OnRanks(3, fmt::format("train --text $([ $RANK = 2 ] && echo none || echo "
                                             "text).txt {} --steps 50 --out bad",
                                             kShape)));
  EXPECT_NE(run.code, 0);
  EXPECT_NE(run.code, 124);
  EXPECT_THAT(run.err, AllOf(HasSubstr("clearhead: rank 2 of 3 on "), HasSubstr("none.txt")));
  EXPECT_EQ(run.err.find("clearhead: "), run.err.rfind("clearhead: ")) << run.err;
}

// Ranks that would each take themselves for the only one write over each other.
TEST(NoMpi, SeveralRanksWithoutTheLibraryAreRefused) {
  const TemporaryFolder folder;
  fs::create_directory(folder / "bin");
  fs::copy_file(CLEARHEAD_PROGRAM, folder / "bin/clearhead");
  for (const char* name : {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS"}) {
    const ShellRun run = Shell(folder.path(), fmt::format("{}=2 bin/clearhead --version", name));
    EXPECT_EQ(run.code, 1);
    EXPECT_THAT(run.err, HasSubstr("2 ranks were started, but this build has no MPI for them"));
  }
  EXPECT_EQ(Shell(folder.path(), "SLURM_NTASKS=2 bin/clearhead --version").code, 0);
}

}  // namespace
}  // namespace clearhead
