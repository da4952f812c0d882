//===- PjrtTransformTest.cpp - The transformation inside a plugin of PJRT ---------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// A plugin of our own stands in for XLA's: it has a chain of extensions, takes a registration, and calls back. The
// layouts are written here a second time, from PJRT's headers.
//
//===------------------------------------------------------------------------------------------===//

#include "CommSched/Frontends/Hlo/Pjrt/PjrtTransform.h"
#include "FakePjrt.h"
#include "llvm/Support/MemoryBuffer.h"
#include "gtest/gtest.h"

using namespace llvm;
using namespace commsched;
using namespace commsched::hlo;
using namespace commsched::hlo::test;

namespace {

//===- PJRT's C API, as far as it is used -----------------------------------------------------===//

extern "C" {
struct Api {
  size_t struct_size;
  PjrtTransformExtension *extension_start;
};
}

PjrtTransformCallbacks *registered = nullptr;
int registrations = 0;

void *takeRegistration(void *opaque) {
  auto *arguments = static_cast<PjrtTransformRegistration *>(opaque);
  EXPECT_EQ(StringRef(arguments->name, arguments->name_size), "commsched");
  EXPECT_EQ(arguments->stage, 1); // After scheduling.
  EXPECT_EQ(arguments->callbacks->version, 1);
  registered = arguments->callbacks;
  ++registrations;
  return nullptr;
}

PjrtTransformExtension transforms = {sizeof(PjrtTransformExtension), kPjrtTransformExtension, nullptr, takeRegistration,
                                     nullptr};
PjrtTransformExtension other = {24, 3, &transforms, nullptr, nullptr};
Api api = {sizeof(Api), &other};

std::string readInput(StringRef name) {
  auto buffer = MemoryBuffer::getFile((COMMSCHED_HLO_INPUTS "/" + name).str(), false, false);
  return buffer ? (*buffer)->getBuffer().str() : "";
}

/// The plugin's answer for a module: the new one, or nothing.
std::string callBack(StringRef module, size_t size = 89) {
  PjrtTransformArguments arguments = {};
  arguments.struct_size = size;
  arguments.api_version = 1;
  arguments.hlo_module = {module.data(), module.size()};
  registered->transform_hlo_module(registered, &arguments);
  EXPECT_FALSE(arguments.has_error);
  std::string result;
  if (arguments.changed)
    result.assign(arguments.transformed_hlo_module.data, arguments.transformed_hlo_module.size);
  if (arguments.cleanup_fn)
    arguments.cleanup_fn(arguments.data);
  return result;
}

TransformOptions optionsOf(StringRef json) { return cantFail(parseTransformOptions(json)); }

} // namespace

// Tests that the callback schedules as scheduleModule does, once it has options, and that reports are taken once.
TEST(PjrtTransform, CallsBack) {
  ASSERT_FALSE(installTransform(&api));
  ASSERT_FALSE(installTransform(&api)); // A second time does nothing.
  ASSERT_EQ(registrations, 1);
  std::string module = readInput("small-moe.pb");
  EXPECT_EQ(callBack(module), "");
  EXPECT_TRUE(takeTransformReports().empty());

  setTransformOptions(optionsOf(R"({"donation": "drop"})"));
  TransformResult expected = transformModule(module, optionsOf(R"({"donation": "drop"})"));
  EXPECT_FALSE(expected.module.empty());
  EXPECT_EQ(callBack(module), expected.module);
  std::vector<json::Object> reports = takeTransformReports();
  ASSERT_EQ(reports.size(), 1u);
  EXPECT_EQ(reports[0].getBoolean("changed"), true);
  EXPECT_TRUE(reports[0].getNumber("seconds"));
  EXPECT_TRUE(takeTransformReports().empty());

  // Donations are kept unless they are given up, and what is no module stays as it is.
  setTransformOptions(optionsOf("{}"));
  EXPECT_EQ(callBack(module), "");
  EXPECT_EQ(callBack("no module"), "");
  reports = takeTransformReports();
  ASSERT_EQ(reports.size(), 2u);
  EXPECT_NE(reports[0].getString("kept_because")->find("donated"), StringRef::npos);
  EXPECT_NE(reports[1].getString("kept_because")->find("expected a module of XLA"), StringRef::npos);

  // An older plugin, whose arguments are shorter, is left alone.
  EXPECT_EQ(callBack(module, 80), "");
  setTransformOptions(std::nullopt);
  EXPECT_EQ(callBack(module), "");
  EXPECT_TRUE(takeTransformReports().empty());
}

// Tests that a module that is measured with other times keeps its order and its collectives, and that its report has
// their sizes.
TEST(PjrtTransform, Measures) {
  std::string module = readInput("small-fsdp.pb");
  TransformResult plain = transformModule(module, optionsOf(R"({"measure": {}})"));
  TransformResult slow = transformModule(module, optionsOf(R"({"measure": {"all-gather-start": 900000}})"));
  EXPECT_EQ(plain.module, "");
  EXPECT_EQ(slow.module, "");
  EXPECT_EQ(plain.report.getString("kept_because"), "it is only measured");
  const json::Object *before = plain.report.getObject("makespan_ns"), *after = slow.report.getObject("makespan_ns");
  EXPECT_EQ(*before->getInteger("before"), *before->getInteger("after"));
  EXPECT_GT(*after->getInteger("before"), *before->getInteger("before"));
  EXPECT_GE(*after->getInteger("before"), 900'000);
  const json::Object &entry = *slow.report.getArray("computations")->back().getAsObject();
  EXPECT_FALSE(entry.getArray("untimed")->empty());
  const json::Object &start = *entry.getArray("starts")->front().getAsObject();
  EXPECT_EQ(start.getString("name"), "all-gather-start");
  EXPECT_EQ(start.getInteger("cost_ns"), 900'000);
  EXPECT_EQ(start.getString("kind"), "all_gather");
  EXPECT_EQ(start.getInteger("ranks"), 4);
  EXPECT_EQ(start.getInteger("nodes"), 1);
  EXPECT_GT(*start.getInteger("bytes"), 0);
}

// Tests that a plugin without the extension is refused.
TEST(PjrtTransform, NoExtension) {
  Api without = {sizeof(Api), nullptr};
  Error error = installTransform(&without);
  ASSERT_TRUE(static_cast<bool>(error));
  EXPECT_EQ(toString(std::move(error)), "the plugin has no extension for transformations of modules");
}

// Tests that wrong options are refused with the option's name.
TEST(PjrtTransform, WrongOptions) {
  for (auto [json, word] : {std::pair("[]", "object"),
                            {"{\"donation\": 1}", "donation"},
                            {"{\"x\": 1}", "'x'"},
                            {"{\"machine\": \"none-such\"}", "none-such"},
                            {"{\"memory_budget_ratio\": -2}", "memory-budget-ratio"},
                            {"{\"measure\": {\"fusion.1\": -1}}", "measure (times in ns by instruction)"},
                            {"{\"measure\": {\"fusion.1\": \"slow\"}}", "'measure'"},
                            {"{\"objective\": \"mean\"}", "objective (robust, regret or makespan)"},
                            {"{", "Expected"}}) {
    Expected<TransformOptions> options = parseTransformOptions(json);
    ASSERT_FALSE(static_cast<bool>(options)) << json;
    std::string text = toString(options.takeError());
    EXPECT_NE(text.find(word), std::string::npos) << text;
  }
}
