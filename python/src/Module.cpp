//===- Module.cpp - The Python extension over the C API ---------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// One class, Program: a context with one module in it, and the rules of calibrations over functions in Python.
// Everything else is Python. The lock is released while passes run.
//
//===------------------------------------------------------------------------------------------===//

#include "CommSched-c/Calibration.h"
#include "CommSched-c/CommSched.h"
#include "CommSched-c/Hlo.h"

#include <algorithm>
#include <exception>
#include <memory>
#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>
#include <optional>
#include <stdexcept>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

namespace nb = nanobind;

namespace {

/// Raised with the messages of what failed.
struct Failure : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// Takes the bytes over and frees the buffer.
std::string take(CommSchedBuffer buffer) {
  if (!buffer.data)
    throw Failure("out of memory");
  std::string text(buffer.data, buffer.length);
  commschedBufferDestroy(buffer);
  return text;
}

/// Calls into Python from functions of C, through which no exception may pass. One that is no `Exception` (an
/// interrupt) makes later calls fail at once, and is raised by rethrow().
class PythonCalls {
public:
  /// Returns the status of a function of C: 0, or 1 with a reason.
  template <typename Call> int statusOf(Call call) {
    if (interrupt)
      return 1;
    try {
      call();
      return 0;
    } catch (nb::python_error &error) {
      why = nb::cast<std::string>(error.type().attr("__name__")) + ": " + nb::cast<std::string>(nb::str(error.value()));
      if (!error.matches(PyExc_Exception))
        interrupt = std::current_exception();
    } catch (const std::exception &error) {
      why = error.what();
    }
    return 1;
  }
  /// Why the last call that failed did.
  const std::string &reason() const { return why; }
  void rethrow() const {
    if (interrupt)
      std::rethrow_exception(interrupt);
  }

private:
  std::string why;
  std::exception_ptr interrupt;
};

class Program {
public:
  Program(nb::bytes source, const std::string &name, bool allowUnregistered)
      : context(commschedContextCreate(), &commschedContextDestroy), module(nullptr, &commschedModuleDestroy) {
    if (!context)
      throw Failure("out of memory");
    commschedContextAllowUnregisteredDialects(context.get(), allowUnregistered);
    const char *data = source.c_str();
    size_t length = source.size();
    {
      nb::gil_scoped_release release;
      module.reset(commschedModuleParse(context.get(), data, length, name.c_str()));
    }
    if (!module)
      throw Failure(errors());
  }

  void run(const std::string &pipeline) {
    calls = {};
    int status;
    {
      nb::gil_scoped_release release;
      status = commschedModuleRunPipeline(module.get(), pipeline.c_str());
    }
    calls.rethrow();
    if (status)
      throw Failure(errors() + (calls.reason().empty() ? "" : "\n" + calls.reason()));
  }

  /// Sets the times of collectives by size: `points` holds pairs of bytes and nanoseconds.
  void setCurve(const std::string &kind, const std::string &group, const std::optional<std::string> &element,
                const std::vector<std::pair<int64_t, int64_t>> &points) {
    std::vector<int64_t> bytes, ns;
    for (auto [size, time] : points) {
      bytes.push_back(size);
      ns.push_back(time);
    }
    if (commschedContextSetCurve(context.get(), kind.c_str(), group.c_str(), element ? element->c_str() : nullptr,
                                 points.size(), bytes.data(), ns.data()))
      throw Failure(errors());
  }

  /// Lets `function`, which gets a list of numbers and returns those of all `ranks` ranks one after the other, gather
  /// costs. None: nothing gathers them.
  void setGather(size_t ranks, nb::object function) {
    gather = std::move(function);
    numRanks = ranks;
    commschedContextSetGather(context.get(), ranks, gather.is_none() ? nullptr : &callGather, this);
  }

  std::string print(bool locations) { return take(commschedModulePrint(module.get(), locations)); }

  nb::bytes bytecode() {
    std::string bytes = take(commschedModuleWriteBytecode(module.get()));
    return nb::bytes(bytes.data(), bytes.size());
  }

  std::string listOperations() { return take(commschedModuleListOperations(module.get())); }
  std::string listDataflow() { return take(commschedModuleListDataflow(module.get())); }

  /// (kind, location, category, name, text) of every message so far.
  std::vector<std::tuple<int, std::string, std::string, std::string, std::string>> messages() const {
    std::vector<std::tuple<int, std::string, std::string, std::string, std::string>> result;
    for (size_t i = 0, e = commschedContextGetNumMessages(context.get()); i != e; ++i) {
      CommSchedMessage m = commschedContextGetMessage(context.get(), i);
      result.emplace_back(m.kind, m.location, m.category, m.name, m.text);
    }
    return result;
  }

  /// The references to Python objects, for its garbage collector: a function may refer to the program.
  static int traverse(PyObject *self, visitproc visit, void *arg) {
    Py_VISIT(Py_TYPE(self));
    if (nb::inst_ready(self))
      Py_VISIT(nb::inst_ptr<Program>(self)->gather.ptr());
    return 0;
  }
  static int clear(PyObject *self) {
    nb::inst_ptr<Program>(self)->gather.reset();
    return 0;
  }

private:
  static int callGather(const int64_t *own, size_t count, int64_t *all, void *self) {
    return static_cast<Program *>(self)->gatherCosts(own, count, all);
  }

  /// Calls into Python, which the passes have released. An exception that is no `Exception` (an interrupt) is raised
  /// when the passes have returned.
  int gatherCosts(const int64_t *own, size_t count, int64_t *all) {
    nb::gil_scoped_acquire acquire;
    return calls.statusOf([&] {
      auto values = nb::cast<std::vector<int64_t>>(gather(std::vector<int64_t>(own, own + count)));
      if (values.size() != count * numRanks)
        throw Failure("a gather returned another number of values than there are ranks");
      std::copy(values.begin(), values.end(), all);
    });
  }

  /// The errors among the messages, with their notes, one per line.
  std::string errors() const {
    std::string text;
    bool isError = false;
    for (size_t i = 0, e = commschedContextGetNumMessages(context.get()); i != e; ++i) {
      CommSchedMessage m = commschedContextGetMessage(context.get(), i);
      isError = m.kind == COMMSCHED_ERROR || (m.kind == COMMSCHED_NOTE && isError);
      if (!isError)
        continue;
      if (!text.empty())
        text += "\n";
      if (*m.location)
        text += std::string(m.location) + ": ";
      text += (m.kind == COMMSCHED_NOTE ? "note: " : "") + std::string(m.text);
    }
    return text.empty() ? "failed without a message" : text;
  }

  nb::object gather;
  size_t numRanks = 0;
  PythonCalls calls;
  // The module goes before its context.
  std::unique_ptr<CommSchedContext, void (*)(CommSchedContext *)> context;
  std::unique_ptr<CommSchedModule, void (*)(CommSchedModule *)> module;
};

/// A calibration whose collectives run in Python. `bench` is any object with `rank`, `ranks`, `prepare(kind, element,
/// ranks, nodes, bytes)`, `run() -> (total, issue)`, `gather(list) -> list`, `now()` and `progress(line)`. An exception
/// that is no `Exception` (an interrupt) ends the calibration, and is raised when the library has returned: none may
/// pass through it.
class Calibration {
public:
  explicit Calibration(nb::object bench) : bench(std::move(bench)) {}

  std::string run(const std::string &request) {
    CommSchedBench caller{};
    caller.rank = nb::cast<int32_t>(bench.attr("rank"));
    caller.ranks = nb::cast<int32_t>(bench.attr("ranks"));
    caller.prepare = [](const CommSchedProbe *probe, void *self) {
      return of(self).guard([&](nb::object &bench) {
        bench.attr("prepare")(probe->kind, probe->element, probe->ranks, probe->nodes, probe->bytes);
      });
    };
    caller.run = [](int64_t *total, int64_t *issue, void *self) {
      return of(self).guard([&](nb::object &bench) {
        std::tie(*total, *issue) = nb::cast<std::tuple<int64_t, int64_t>>(bench.attr("run")());
      });
    };
    caller.gather = [](const int64_t *own, size_t count, int64_t *all, void *self) {
      return of(self).guard([&](nb::object &bench) {
        auto values = nb::cast<std::vector<int64_t>>(bench.attr("gather")(std::vector<int64_t>(own, own + count)));
        if (values.size() != count * nb::cast<size_t>(bench.attr("ranks")))
          throw Failure("a gather returned another number of values than there are ranks");
        std::copy(values.begin(), values.end(), all);
      });
    };
    caller.now = [](void *self) {
      int64_t time = 0;
      of(self).guard([&](nb::object &bench) { time = nb::cast<int64_t>(bench.attr("now")()); });
      return time;
    };
    caller.progress = [](const char *line, void *self) {
      of(self).guard([&](nb::object &bench) { bench.attr("progress")(line); });
    };
    caller.reason = [](void *self) { return of(self).calls.reason().c_str(); };
    caller.data = this;
    CommSchedBuffer result;
    int status = commschedCalibrate(&caller, request.c_str(), &result);
    std::string text = take(result);
    calls.rethrow();
    if (status)
      throw Failure(text);
    return text;
  }

private:
  static Calibration &of(void *self) { return *static_cast<Calibration *>(self); }

  template <typename Call> int guard(Call call) {
    return calls.statusOf([&] { call(bench); });
  }

  nb::object bench;
  PythonCalls calls;
};

/// Raises an error if `status` is not 0.
void check(int status, CommSchedBuffer reason) {
  std::string text = take(reason);
  if (status)
    throw Failure(text);
}

/// The module, or None if it stays as it was, and the report.
std::tuple<nb::object, std::string> scheduleHlo(nb::bytes module, const std::string &options) {
  CommSchedBuffer scheduled, report;
  int status;
  {
    nb::gil_scoped_release release;
    status = commschedScheduleHlo(module.c_str(), module.size(), options.c_str(), &scheduled, &report);
  }
  std::string bytes = take(scheduled), text = take(report);
  if (status)
    throw Failure(text);
  return {bytes.empty() ? nb::none() : nb::object(nb::bytes(bytes.data(), bytes.size())), text};
}

void configureXla(std::optional<std::string> options) {
  CommSchedBuffer reason;
  int status = commschedXlaConfigure(options ? options->c_str() : nullptr, &reason);
  check(status, reason);
}

} // namespace

NB_MODULE(_commsched, m) {
  m.doc() = "CommSched's C API. Use the package `commsched`.";
  nb::exception<Failure>(m, "Error", PyExc_RuntimeError);
  m.def("version", [] { return std::string(commschedGetVersion()); });
  m.def(
      "calibrate",
      [](nb::object bench, const std::string &request) { return Calibration(std::move(bench)).run(request); },
      nb::arg("bench"), nb::arg("request"));
  m.def(
      "profile_from_traces",
      [](const std::string &request) {
        CommSchedBuffer result;
        int status;
        {
          nb::gil_scoped_release release;
          status = commschedProfileFromTraces(request.c_str(), &result);
        }
        std::string text = take(result);
        if (status)
          throw Failure(text);
        return text;
      },
      nb::arg("request"));
  m.def("calibration_folder", [] { return take(commschedCalibrationFolder()); });
  m.def("schedule_hlo", &scheduleHlo, nb::arg("module"), nb::arg("options") = "{}");
  m.def(
      "xla_install",
      [](uintptr_t api) {
        CommSchedBuffer reason;
        int status = commschedXlaInstall(reinterpret_cast<const void *>(api), &reason);
        check(status, reason);
      },
      nb::arg("api"));
  m.def("xla_configure", &configureXla, nb::arg("options").none());
  m.def("xla_take_reports", [] { return take(commschedXlaTakeReports()); });
  PyType_Slot slots[] = {{Py_tp_traverse, reinterpret_cast<void *>(&Program::traverse)},
                         {Py_tp_clear, reinterpret_cast<void *>(&Program::clear)},
                         {0, nullptr}};
  nb::class_<Program>(m, "Program", nb::type_slots(slots))
      .def(nb::init<nb::bytes, const std::string &, bool>(), nb::arg("source"), nb::arg("name") = "<memory>",
           nb::arg("allow_unregistered") = false)
      .def("run", &Program::run, nb::arg("pipeline"))
      .def("set_curve", &Program::setCurve, nb::arg("kind"), nb::arg("group"), nb::arg("element").none(),
           nb::arg("points"))
      .def("set_gather", &Program::setGather, nb::arg("ranks"), nb::arg("gather").none())
      .def("print", &Program::print, nb::arg("locations") = false)
      .def("bytecode", &Program::bytecode)
      .def("list_operations", &Program::listOperations)
      .def("list_dataflow", &Program::listDataflow)
      .def("messages", &Program::messages);
}
