// SPDX-License-Identifier: MIT
// clearhead._clearhead: the public surface (src/api) for Python. Thin: everything that reads well
// in Python is in clearhead/*.py.
//
// Rules: the interpreter's lock is released during work and taken for callbacks; arrays point to
// the library's memory and keep it alive; Ctrl-C is looked for every 50 ms.
#include <clearhead/clearhead.h>
#include <pybind11/functional.h>
#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <chrono>
#include <cstring>

namespace py = pybind11;
namespace ch = clearhead::api;

namespace {

using Ids = py::array_t<std::int32_t, py::array::c_style | py::array::forcecast>;
using Floats = py::array_t<float, py::array::c_style | py::array::forcecast>;
using Clock = std::chrono::steady_clock;

// numpy's view of an array of the library's.
py::array_t<float> ToNumpy(const ch::Array& array) {
  auto* owner = new std::shared_ptr<const void>(array.owner);
  const py::capsule keep(
      owner, [](void* held) { delete static_cast<std::shared_ptr<const void>*>(held); });
  return py::array_t<float>(array.shape, array.data, keep);
}

py::dict ToNumpy(const std::map<std::string, ch::Array>& arrays) {
  py::dict dict;
  for (const auto& [name, array] : arrays) dict[py::str(name)] = ToNumpy(array);
  return dict;
}

std::span<const std::int32_t> View(const Ids& ids) {
  return {ids.data(), static_cast<std::size_t>(ids.size())};
}

// Ctrl-C and progress during one call, from a thread without the interpreter's lock.
class Watch {
 public:
  explicit Watch(py::object progress) : progress_(std::move(progress)) {}

  // Calls the library without the lock. What a signal raised is what the caller gets; what the
  // library says about how to go on is its note.
  template <typename Work>
  auto Run(const Work& work) {
    const ch::Control control = Control();
    try {
      const py::gil_scoped_release release;
      return work(control);
    } catch (const ch::Interrupted& stopped) {
      if (!raised_) throw;
      if (py::hasattr(raised_->value(), "add_note")) {
        raised_->value().attr("add_note")(stopped.what());
      }
      throw *raised_;
    }
  }

 private:
  ch::Control Control() {
    ch::Control control{.should_stop = [this] { return Stops(); }};
    if (!progress_.is_none()) control.progress = [this](const ch::Progress& p) { Report(p); };
    return control;
  }

  bool Stops() {
    const Clock::time_point now = Clock::now();
    if (now - asked_ < std::chrono::milliseconds(50)) return false;
    asked_ = now;
    const py::gil_scoped_acquire lock;
    // KeyboardInterrupt, or what the program's own handler raises.
    if (!raised_ && PyErr_CheckSignals() != 0) raised_.emplace();
    return raised_.has_value();
  }

  void Report(const ch::Progress& p) {
    const Clock::time_point now = Clock::now();
    if (!p.finished && now - told_ < std::chrono::milliseconds(100)) return;
    told_ = now;
    const py::gil_scoped_acquire lock;
    progress_(std::string(p.label), p.done, p.total, std::string(p.unit), std::string(p.extra),
              p.finished);
  }

  py::object progress_;
  std::optional<py::error_already_set> raised_;
  Clock::time_point asked_ = Clock::now(), told_{};
};

template <typename Work>
auto WithoutLock(const Work& work) {
  const py::gil_scoped_release release;
  return work();
}

ch::Gates ParseGates(const std::string& gates) {
  if (gates == "hard") return ch::Gates::kHard;
  if (gates == "open") return ch::Gates::kOpen;
  throw py::value_error("gates='" + gates + "'; they can be 'hard' or 'open'");
}

ch::Change ParseChange(const std::string& change) {
  if (change == "zero") return ch::Change::kZero;
  if (change == "set") return ch::Change::kSet;
  if (change == "add") return ch::Change::kAdd;
  if (change == "scale") return ch::Change::kScale;
  throw py::value_error("change='" + change + "'; it can be 'zero', 'set', 'add' or 'scale'");
}

using Places = std::vector<std::int64_t>;

ch::Intervention MakeIntervention(std::string tap, const std::string& change, Places positions,
                                  Places heads, Places keys, Places sequences,
                                  const std::optional<Floats>& values) {
  ch::Intervention intervention{.tap = std::move(tap),
                                .change = ParseChange(change),
                                .positions = std::move(positions),
                                .heads = std::move(heads),
                                .keys = std::move(keys),
                                .sequences = std::move(sequences)};
  if (values) {
    intervention.values.assign(values->data(), values->data() + values->size());
    intervention.shape.assign(values->shape(), values->shape() + values->ndim());
  }
  return intervention;
}

// f(value, tap): the array is a copy of its own, which may be kept; what f returns, or else the
// array as f left it, becomes the value.
ch::Hook MakeHook(const std::string& taps, const py::function& f) {
  // The function is let go with the lock held, whoever lets it go last.
  const std::shared_ptr<py::function> held(new py::function(f), [](py::function* function) {
    const py::gil_scoped_acquire lock;
    delete function;
  });
  return {
      taps, [held](const std::string& tap, const ch::Array& value) {
        const py::gil_scoped_acquire lock;
        const py::array_t<float> copy(value.shape, value.data);
        const py::object answer = (*held)(copy, tap);
        const Floats changed = Floats::ensure(answer.is_none() ? py::object(copy) : answer);
        if (!changed) {
          throw py::type_error("a hook at " + tap + " must return an array of numbers, or None");
        }
        const bool fits = changed.ndim() == static_cast<py::ssize_t>(value.shape.size()) &&
                          std::equal(value.shape.begin(), value.shape.end(), changed.shape());
        if (!fits) {
          throw py::value_error("a hook at " + tap + " returned the shape " +
                                std::string(py::str(changed.attr("shape"))) + "; expected " +
                                std::string(py::str(copy.attr("shape"))));
        }
        std::memcpy(value.data, changed.data(), static_cast<std::size_t>(changed.nbytes()));
      }};
}

py::tuple Run(const ch::Model& model, const Ids& ids, std::int64_t batch, const std::string& taps,
              bool gradients, const std::vector<ch::Intervention>& interventions,
              const std::vector<std::pair<std::string, py::function>>& hooks,
              const std::string& gates) {
  ch::RunOptions options{.taps = taps,
                         .gradients = gradients,
                         .interventions = interventions,
                         .gates = ParseGates(gates),
                         .batch = batch};
  for (const auto& [names, function] : hooks) options.hooks.push_back(MakeHook(names, function));
  Watch watch{py::none()};
  const ch::Run run =
      watch.Run([&](const ch::Control& control) { return model.Run(View(ids), options, control); });
  return py::make_tuple(ToNumpy(run.logits), ToNumpy(run.taps), run.loss, ToNumpy(run.gradients));
}

std::vector<std::int32_t> Generate(const ch::Model& model, const Ids& prompt, std::int64_t max_new,
                                   double temperature, std::int64_t top_k, std::uint64_t seed,
                                   bool stop_at_end, const std::string& gates,
                                   const py::object& on_token) {
  ch::GenerateOptions options{.max_new = max_new,
                              .temperature = temperature,
                              .top_k = top_k,
                              .seed = seed,
                              .stop_at_end = stop_at_end,
                              .gates = ParseGates(gates)};
  if (!on_token.is_none()) {
    options.on_token = [&](std::int32_t id) {
      const py::gil_scoped_acquire lock;
      on_token(id);
    };
  }
  Watch watch{py::none()};
  return watch.Run(
      [&](const ch::Control& control) { return model.Generate(View(prompt), options, control); });
}

py::dict Evaluate(const ch::Model& model, const Ids& ids, std::int64_t context,
                  std::int64_t max_tokens, const std::string& gates, const py::object& progress) {
  const ch::EvaluateOptions options{
      .context = context, .max_tokens = max_tokens, .gates = ParseGates(gates)};
  Watch watch{progress};
  const ch::Evaluation e = watch.Run(
      [&](const ch::Control& control) { return model.Evaluate(View(ids), options, control); });
  py::dict result;
  result["loss"] = e.loss;
  result["perplexity"] = e.perplexity;
  result["tokens"] = e.tokens;
  result["windows"] = e.windows;
  result["context"] = e.context;
  result["seconds"] = e.seconds;
  if (e.edge_fraction) result["edge_fraction"] = *e.edge_fraction;
  if (e.edges_per_query) result["edges_per_query"] = *e.edges_per_query;
  return result;
}

// Text of tokens may end inside a character.
py::str Decode(const std::string& bytes) {
  PyObject* text =
      PyUnicode_DecodeUTF8(bytes.data(), static_cast<Py_ssize_t>(bytes.size()), "replace");
  if (text == nullptr) throw py::error_already_set();
  return py::reinterpret_steal<py::str>(text);
}

py::str Command(const std::vector<std::string>& words, const py::object& progress) {
  Watch watch{progress};
  return Decode(watch.Run([&](const ch::Control& control) { return ch::Command(words, control); }));
}

void AddModel(py::module_& module) {
  py::class_<ch::Intervention>(
      module, "Intervention",
      "A change to chosen elements of a tap during a run: change is 'zero', "
      "'set', 'add' or 'scale', by values of the tap's shape or with extents "
      "1 that are repeated. Empty lists choose everything.")
      .def(py::init(&MakeIntervention), py::arg("tap"), py::arg("change") = "zero", py::kw_only(),
           py::arg("positions") = Places(), py::arg("heads") = Places(), py::arg("keys") = Places(),
           py::arg("sequences") = Places(), py::arg("values") = py::none());
  py::class_<ch::ModelInfo>(module, "ModelInfo")
      .def_readonly("name", &ch::ModelInfo::name)
      .def_readonly("folder", &ch::ModelInfo::folder)
      .def_readonly("layers", &ch::ModelInfo::layers)
      .def_readonly("heads", &ch::ModelInfo::heads)
      .def_readonly("key_value_heads", &ch::ModelInfo::key_value_heads)
      .def_readonly("head_size", &ch::ModelInfo::head_size)
      .def_readonly("width", &ch::ModelInfo::width)
      .def_readonly("inner", &ch::ModelInfo::inner)
      .def_readonly("vocabulary", &ch::ModelInfo::vocabulary)
      .def_readonly("positions", &ch::ModelInfo::positions)
      .def_readonly("parameters", &ch::ModelInfo::parameters)
      .def_readonly("gated", &ch::ModelInfo::gated)
      .def_readonly("gate_bias", &ch::ModelInfo::gate_bias);
  py::class_<ch::Model>(module, "Model")
      .def_static(
          "load",
          [](const std::string& name, int threads) {
            return WithoutLock([&] { return ch::Model::Load(name, {.threads = threads}); });
          },
          py::arg("name"), py::arg("threads") = 0)
      .def_property_readonly("info", &ch::Model::info, py::return_value_policy::reference_internal)
      .def("encode", [](const ch::Model& m, const std::string& text) { return m.Encode(text); })
      .def("encode_file",
           [](const ch::Model& m, const std::string& path) {
             return WithoutLock([&] { return m.EncodeFile(path); });
           })
      .def("decode", [](const ch::Model& m,
                        const std::vector<std::int32_t>& ids) { return Decode(m.Decode(ids)); })
      .def("token_text",
           [](const ch::Model& m, std::int32_t id) { return Decode(m.TokenText(id)); })
      .def("single_token",
           [](const ch::Model& m, const std::string& text) { return m.SingleToken(text); })
      .def("tap_names", &ch::Model::TapNames)
      .def("match_taps", &ch::Model::MatchTaps)
      .def("tap_shape", &ch::Model::TapShape)
      .def("run", &Run)
      .def("generate", &Generate)
      .def("predict",
           [](const ch::Model& m, const Ids& ids, std::int64_t count, const std::string& gates) {
             const ch::Gates how = ParseGates(gates);
             py::list list;
             for (const ch::Prediction& p :
                  WithoutLock([&] { return m.Predict(View(ids), count, how); })) {
               list.append(py::make_tuple(p.token, Decode(p.text), p.probability));
             }
             return list;
           })
      .def("evaluate", &Evaluate);
}

}  // namespace

PYBIND11_MODULE(_clearhead, module) {
  module.doc() = "The library itself; `import clearhead` is what people use.";
  static py::exception<ch::Error> error(module, "Error", PyExc_RuntimeError);
  error.attr("__doc__") = "Something was not as needed; the message says what to do.";
  static py::exception<ch::UsageError> usage(module, "UsageError", error.ptr());
  usage.attr("__doc__") = "A command's options were not understood.";
  static py::exception<ch::Interrupted> interrupted(module, "Interrupted", error.ptr());
  interrupted.attr("__doc__") = "Work that was asked to stop.";
  // NOLINTNEXTLINE(performance-unnecessary-value-param): the signature is pybind11's
  py::register_exception_translator([](std::exception_ptr thrown) {
    try {
      if (thrown) std::rethrow_exception(thrown);
    } catch (const ch::UsageError& e) {
      usage(e.what());
    } catch (const ch::Interrupted& e) {
      interrupted(e.what());
    } catch (const ch::Error& e) {
      error(e.what());
    }
  });
  AddModel(module);
  module.def("command", &Command, py::arg("words"), py::arg("progress") = py::none());
  module.def("shipped", &ch::Model::Shipped);
  module.attr("version") = ch::Version();
  module.attr("commit") = ch::Commit();
}
