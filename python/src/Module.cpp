//===- Module.cpp - The Python extension over the C API ---------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// One class, Program: a context with one module in it. Everything else is Python. The lock is released while passes
// run.
//
//===------------------------------------------------------------------------------------------===//

#include "CommSched-c/CommSched.h"

#include <memory>
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>
#include <stdexcept>
#include <string>
#include <tuple>
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
    int status;
    {
      nb::gil_scoped_release release;
      status = commschedModuleRunPipeline(module.get(), pipeline.c_str());
    }
    if (status)
      throw Failure(errors());
  }

  std::string print(bool locations) { return take(commschedModulePrint(module.get(), locations)); }

  nb::bytes bytecode() {
    std::string bytes = take(commschedModuleWriteBytecode(module.get()));
    return nb::bytes(bytes.data(), bytes.size());
  }

  std::string listOperations() { return take(commschedModuleListOperations(module.get())); }

  /// (kind, location, category, name, text) of every message so far.
  std::vector<std::tuple<int, std::string, std::string, std::string, std::string>> messages() const {
    std::vector<std::tuple<int, std::string, std::string, std::string, std::string>> result;
    for (size_t i = 0, e = commschedContextGetNumMessages(context.get()); i != e; ++i) {
      CommSchedMessage m = commschedContextGetMessage(context.get(), i);
      result.emplace_back(m.kind, m.location, m.category, m.name, m.text);
    }
    return result;
  }

private:
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

  // The module goes before its context.
  std::unique_ptr<CommSchedContext, void (*)(CommSchedContext *)> context;
  std::unique_ptr<CommSchedModule, void (*)(CommSchedModule *)> module;
};

} // namespace

NB_MODULE(_commsched, m) {
  m.doc() = "CommSched's C API. Use the package `commsched`.";
  nb::exception<Failure>(m, "Error", PyExc_RuntimeError);
  m.def("version", [] { return std::string(commschedGetVersion()); });
  nb::class_<Program>(m, "Program")
      .def(nb::init<nb::bytes, const std::string &, bool>(), nb::arg("source"), nb::arg("name") = "<memory>",
           nb::arg("allow_unregistered") = false)
      .def("run", &Program::run, nb::arg("pipeline"))
      .def("print", &Program::print, nb::arg("locations") = false)
      .def("bytecode", &Program::bytecode)
      .def("list_operations", &Program::listOperations)
      .def("messages", &Program::messages);
}
