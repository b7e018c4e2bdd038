// SPDX-License-Identifier: MIT
#include "train/checkpoint.h"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <span>
#include <vector>

#include "core/error.h"
#include "core/file.h"
#include "core/safetensors.h"

namespace clearhead {
namespace {
namespace fs = std::filesystem;
using Moment = ParameterBlock::Moment;

constexpr std::string_view kPrefix = "checkpoint-";
constexpr std::string_view kSuffix = ".safetensors";

std::optional<std::int64_t> StepOf(const fs::path& file) {
  const std::string name = file.filename().string();
  if (!name.starts_with(kPrefix) || !name.ends_with(kSuffix)) return std::nullopt;
  const char* first = name.data() + kPrefix.size();
  const char* last = name.data() + name.size() - kSuffix.size();
  std::int64_t step = 0;
  const auto [end, error] = std::from_chars(first, last, step);
  if (error != std::errc() || end != last) return std::nullopt;
  return step;
}

// Checkpoints in the folder, newest first.
std::vector<std::pair<std::int64_t, fs::path>> List(const fs::path& folder) {
  std::vector<std::pair<std::int64_t, fs::path>> found;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    if (const auto step = StepOf(entry.path())) found.emplace_back(*step, entry.path());
  }
  std::sort(found.rbegin(), found.rend());
  return found;
}

// The bytes of `wanted` values; `picked` holds them where the file has the whole model's.
std::span<const std::byte> ReadFlat(const SafetensorsFile& file, std::string_view name,
                                    const TrainingRun& run, std::int64_t wanted,
                                    Buffer<float>& picked) {
  const TensorEntry& entry = file.Get(name);
  if (entry.dtype == DType::kF32 && entry.size() > wanted) {
    Buffer<float> whole(entry.size());
    ConvertToFloat(entry, whole.data());
    picked = Buffer<float>(wanted);
    if (run.PickTrained(whole.span(), picked.span())) return std::as_bytes(picked.span());
  }
  if (entry.dtype != DType::kF32 || entry.size() != wanted) {
    Fail("{}: '{}' has {} values, this model needs {}; it is a checkpoint of another model",
         file.source(), name, entry.size(), wanted);
  }
  return entry.bytes;
}

template <typename T>
std::vector<T> ReadRaw(const SafetensorsFile& file, std::string_view name, DType dtype) {
  const TensorEntry& entry = file.Get(name);
  if (entry.dtype != dtype) Fail("{}: '{}' is not {}", file.source(), name, DTypeName(dtype));
  std::vector<T> values(entry.bytes.size() / sizeof(T));
  std::memcpy(values.data(), entry.bytes.data(), values.size() * sizeof(T));
  return values;
}

Json ReadObject(const SafetensorsFile& file, const std::string& name) {
  const auto found = file.metadata().find(name);
  Json json = found == file.metadata().end() ? Json() : ParseJson(found->second, file.source());
  if (!json.is_object()) Fail("{}: its {} are not an object", file.source(), name);
  return json;
}

void CompareSettings(const Json& stored, const Json& wanted, const std::string& source) {
  for (const auto& [name, value] : wanted.items()) {
    const auto it = stored.find(name);
    if (it == stored.end() || *it != value) {
      Fail(
          "{}: this run was started with {} = {}, now it is {}; resume with the same settings, or "
          "start "
          "afresh in another folder",
          source, name, it == stored.end() ? "(none)" : it->dump(), value.dump());
    }
  }
}

// What AtomicFile leaves behind when the process is killed in the middle of a write.
bool IsTemporary(const fs::path& file) {
  const std::string name = file.filename().string();
  return name.starts_with(kPrefix) && name.ends_with(".tmp");
}

}  // namespace

void SaveCheckpoint(const fs::path& folder, ParameterBlock& parameters,
                    const CheckpointState& state, bool writes) {
  if (!writes) {  // what the first rank asks for, in its order
    parameters.VisitMoment(Moment::kFirst, {});
    parameters.VisitMoment(Moment::kSecond, {});
    return;
  }
  MakeDirectory(folder);
  const std::vector<std::int64_t> shape = {static_cast<std::int64_t>(parameters.values().size())};
  const auto moment = [&](std::string name, Moment which) {
    return TensorToWrite{.name = std::move(name),
                         .dtype = DType::kF32,
                         .shape = shape,
                         .make = [&parameters, which](const auto& write) {
                           parameters.VisitMoment(which, [&](std::span<const float> part) {
                             write(std::as_bytes(part));
                           });
                         }};
  };
  const std::int64_t counters[] = {state.step, parameters.steps()};
  const std::vector<TensorToWrite> tensors = {
      {.name = "weights", .dtype = DType::kF32, .shape = shape, .data = parameters.values().data()},
      moment("first_moment", Moment::kFirst),
      moment("second_moment", Moment::kSecond),
      {.name = "counters",
       .dtype = DType::kI64,
       .shape = {2},
       .data = nullptr,
       .raw = std::as_bytes(std::span(counters))},
  };
  WriteSafetensors(folder / fmt::format("{}{}{}", kPrefix, state.step, kSuffix), tensors,
                   {{"settings", ToText(state.settings, -1)},
                    {"health", ToText(state.health, -1)},
                    {"run", ToText(state.run, -1)}});
  for (const auto& [step, file] : List(folder)) {
    std::error_code ignored;  // an old file that stays is harmless
    if (step < state.step) fs::remove(file, ignored);
  }
}

std::optional<fs::path> FindCheckpoint(const fs::path& folder) {
  const auto found = List(folder);
  if (found.empty()) return std::nullopt;
  return found.front().second;
}

CheckpointState LoadCheckpoint(const fs::path& path, const Json& settings, TrainingRun& run) {
  const SafetensorsFile file(path);
  CheckpointState state;
  if (!file.metadata().contains("settings")) {
    Fail("{}: not a checkpoint of clearhead", path.string());
  }
  state.settings = ReadObject(file, "settings");
  CompareSettings(state.settings, settings, path.string());
  ParameterBlock& parameters = run.parameters();
  Buffer<float> picked;
  const std::span<float> values = parameters.values();
  const auto read = [&](std::string_view name) {
    return ReadFlat(file, name, run, static_cast<std::int64_t>(values.size()), picked);
  };
  std::memcpy(values.data(), read("weights").data(), values.size_bytes());
  parameters.SetMoment(Moment::kFirst, read("first_moment"));
  parameters.SetMoment(Moment::kSecond, read("second_moment"));
  const auto counters = ReadRaw<std::int64_t>(file, "counters", DType::kI64);
  if (counters.size() != 2 || counters[0] < 0 || counters[1] < 0) {
    Fail("{}: its counters make no sense", path.string());
  }
  state.step = counters[0];
  parameters.set_steps(counters[1]);
  if (file.metadata().contains("run")) {
    state.health = ReadObject(file, "health");
    state.run = ReadObject(file, "run");
  } else {  // numbers without names: the watch's two, then the run's own
    const auto numbers = ReadRaw<double>(file, "run", DType::kF64);
    if (numbers.size() < 2) Fail("{}: its state is cut short", path.string());
    state.health = {{"average", numbers[0]}, {"seen", numbers[1]}};
    state.run = run.StateOfNumbers(std::span(numbers).subspan(2));
  }
  return state;
}

void RemoveCheckpoints(const fs::path& folder) {
  std::error_code ignored;
  for (const auto& [step, file] : List(folder)) fs::remove(file, ignored);
  for (const auto& entry : fs::directory_iterator(folder, ignored)) {
    if (IsTemporary(entry.path())) fs::remove(entry.path(), ignored);
  }
  fs::remove(folder, ignored);  // only if empty
}

}  // namespace clearhead
