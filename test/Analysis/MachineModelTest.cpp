//===- MachineModelTest.cpp - Tests of machine profiles ---------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//

#include "CommSched/Machine/MachineModel.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/SmallString.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/Path.h"
#include "llvm/Support/raw_ostream.h"
#include "gtest/gtest.h"
#include <cstdlib>

using namespace commsched;
namespace json = llvm::json;

namespace {

/// The least that a profile has to say.
constexpr const char *kMinimal = R"({
  "schema_version": 1,
  "name": "tiny",
  "node": {"ranks": 2},
  "memory": {"capacity_bytes": 1000000, "bandwidth_gbps": 100},
  "compute": {"peak_tflops": {"f32": 1}},
  "copy": {"launch_ns": 10, "bandwidth_gbps": 50},
  "links": {"base_ns": 100, "intra": {"bandwidth_gbps": 10, "latency_ns": 5}}
})";

std::string errorOf(llvm::StringRef text) {
  llvm::Expected<MachineModel> machine = MachineModel::parse(text, "x.json");
  return machine ? "no error" : llvm::toString(machine.takeError());
}

/// kMinimal with the value at a path ("links.intra.latency_ns") replaced, or removed where `value` is null.
std::string edited(llvm::StringRef path, json::Value value) {
  json::Value document = llvm::cantFail(json::parse(kMinimal));
  json::Object *object = document.getAsObject();
  while (path.contains('.')) {
    auto [head, tail] = path.split('.');
    object = object->getObject(head);
    path = tail;
  }
  if (value.kind() == json::Value::Null)
    object->erase(path);
  else
    (*object)[path] = std::move(value);
  std::string text;
  llvm::raw_string_ostream(text) << document;
  return text;
}

TEST(MachineModel, ReadsTheMinimalProfile) {
  MachineModel machine = llvm::cantFail(MachineModel::parse(kMinimal));
  EXPECT_EQ(machine.name, "tiny");
  EXPECT_EQ(machine.ranksPerNode, 2);
  EXPECT_EQ(machine.memoryBytesPerSecond, 100'000'000'000);
  EXPECT_EQ(machine.matrixRate(ElementType::F32), 1'000'000'000'000);
  // Without a rate of its own a type has that of the type it is computed in; without vector rates, the matrix rate.
  EXPECT_EQ(machine.matrixRate(ElementType::F8), 1'000'000'000'000);
  EXPECT_EQ(machine.vectorRate(ElementType::Other), 1'000'000'000'000);
  // Without links between nodes, all links are those inside.
  EXPECT_EQ(machine.inter.bytesPerSecond, machine.intra.bytesPerSecond);
  EXPECT_EQ(machine.issue, 0);
  EXPECT_EQ(machine.lanes, LaneSharing::PerGroup);
  EXPECT_FALSE(machine.nccl.has_value());
}

TEST(MachineModel, GroupsShareTheLanesOfLinksUnlessTheProfileSaysHowTheyMeet) {
  auto lanesOf = [](std::string text) { return llvm::cantFail(MachineModel::parse(text)).lanes; };
  EXPECT_EQ(lanesOf(edited("lanes", "per_link")), LaneSharing::PerLink);
  EXPECT_EQ(lanesOf(edited("lanes", "one")), LaneSharing::One);
  json::Value both = llvm::cantFail(json::parse(edited("lanes", "per_link")));
  (*both.getAsObject())["calibration"] = json::Object{
      {"pairs", json::Array{json::Object{{"kind", "all_reduce"}, {"bytes", 1}, {"nodes", 1}, {"permille", 500}}}}};
  EXPECT_EQ(lanesOf(llvm::formatv("{0}", both).str()), LaneSharing::PerGroup);
}

TEST(MachineModel, NamesTheFieldThatIsWrong) {
  EXPECT_EQ(errorOf(edited("links.intra.bandwidth_gbps", 0)),
            "machine 'x.json': field 'links.intra.bandwidth_gbps': expected a positive number");
  EXPECT_EQ(errorOf(edited("links.intra.bandwidth_gbps", nullptr)),
            "machine 'x.json': field 'links.intra.bandwidth_gbps': expected a positive number");
  EXPECT_EQ(errorOf(edited("links.intra.bandwith_gbps", 3)),
            "machine 'x.json': field 'links.intra.bandwith_gbps': unknown field");
  EXPECT_EQ(errorOf(edited("node", nullptr)), "machine 'x.json': field 'node': expected an object");
  EXPECT_EQ(errorOf(edited("node.ranks", 0)),
            "machine 'x.json': field 'node.ranks': expected an integer of at least 1");
  EXPECT_EQ(errorOf(edited("node.ranks", 1.5)),
            "machine 'x.json': field 'node.ranks': expected an integer of at least 1");
  EXPECT_EQ(errorOf(edited("compute.peak_tflops.f32", nullptr)),
            "machine 'x.json': field 'compute.peak_tflops.f32': expected a rate, got none");
  EXPECT_EQ(errorOf(edited("compute.peak_tflops.f33", 1)),
            "machine 'x.json': field 'compute.peak_tflops.f33': unknown field");
  EXPECT_EQ(errorOf(edited("compute.peak_tflops.f64", 1e30)),
            "machine 'x.json': field 'compute.peak_tflops.f64': too large");
  for (const char *field : {"memory.efficiency_permille", "compute.efficiency_permille"})
    EXPECT_EQ(errorOf(edited(field, 1001)),
              std::string("machine 'x.json': field '") + field + "': expected at most 1000, got 1001");
  EXPECT_EQ(errorOf(edited("schema_version", 2)), "machine 'x.json': field 'schema_version': expected 1");
  EXPECT_EQ(errorOf(edited("lanes", "two")),
            "machine 'x.json': field 'lanes': expected one of per_group, per_link, one");
  EXPECT_EQ(errorOf(edited("memory.source", 3)), "machine 'x.json': field 'memory.source': expected a string");
  EXPECT_EQ(errorOf(edited("slowdown", json::Object{})), "machine 'x.json': field 'slowdown': unknown field");
}

TEST(MachineModel, NamesTheEntryOfATableThatIsWrong) {
  auto table = [](json::Array points) {
    return json::Array{json::Object{{"kind", "all_reduce"}, {"ranks", 2}, {"nodes", 1}, {"points", std::move(points)}}};
  };
  EXPECT_EQ(errorOf(edited("collectives", table(json::Array{}))),
            "machine 'x.json': field 'collectives[0].points': expected at least one point");
  EXPECT_EQ(errorOf(edited("collectives", table(json::Array{json::Object{{"bytes", 8}, {"ns", 5}},
                                                            json::Object{{"bytes", 8}, {"ns", 6}}}))),
            "machine 'x.json': field 'collectives[0].points[1].bytes': expected more bytes than at the previous point");
  EXPECT_EQ(errorOf(edited("collectives", table(json::Array{json::Object{{"bytes", 8}, {"ns", 0}}}))),
            "machine 'x.json': field 'collectives[0].points[0].ns': expected an integer of at least 1");
  EXPECT_EQ(
      errorOf(edited("collectives", json::Array{json::Object{{"kind", "all_reduce"}, {"ranks", 2}, {"nodes", 3}}})),
      "machine 'x.json': field 'collectives[0].nodes': expected at most 'ranks' (2), got 3");
  EXPECT_EQ(errorOf(edited("collectives", json::Array{json::Object{{"kind", "all_sum"}}})),
            "machine 'x.json': field 'collectives[0].kind': expected a kind of collective, such as all_gather");
  EXPECT_EQ(errorOf(edited("ops", json::Array{json::Object{{"name", "a.b"}, {"ns", 1}, {"shapes", json::Array{1}}}})),
            "machine 'x.json': field 'ops[0].shapes': expected an array of strings");
  EXPECT_EQ(errorOf(edited("ops", json::Array{3})), "machine 'x.json': field 'ops[0]': expected an object");
  auto contention = [](const char *against, int64_t permille) {
    return json::Array{json::Object{{"kind", "all_gather"},
                                    {"bytes", 8},
                                    {"against", against},
                                    {"compute_permille", permille},
                                    {"collective_permille", 5}}};
  };
  EXPECT_EQ(errorOf(edited("contention", contention("vector", 1))),
            "machine 'x.json': field 'contention[0].against': expected one of matrix, memory");
  EXPECT_EQ(errorOf(edited("contention", contention("matrix", -1))),
            "machine 'x.json': field 'contention[0].compute_permille': expected an integer of at least 0");
  EXPECT_EQ(errorOf(edited("contention", contention("memory", 1))), "no error");
  EXPECT_EQ(errorOf(edited("resources", json::Object{{"ctas", 1}})),
            "machine 'x.json': field 'resources.compute_units': expected compute units, the rate of network or "
            "node_links, or shares");
  EXPECT_EQ(errorOf(edited("resources", json::Object{{"compute_units", 1}, {"vector_units_permille", 1001}})),
            "machine 'x.json': field 'resources.vector_units_permille': expected at most 1000, got 1001");
  EXPECT_EQ(errorOf(edited("resources", json::Object{{"compute_units", 1}, {"sms", 1}})),
            "machine 'x.json': field 'resources.sms': unknown field");
  EXPECT_EQ(errorOf(edited("compute.half_flops", json::Object{{"f31", 1}})),
            "machine 'x.json': field 'compute.half_flops.f31': unknown field");
  auto tiles = [](json::Object size) {
    return edited("compute.matmul_tiles", json::Object{{"units", 2}, {"sizes", json::Array{std::move(size)}}});
  };
  EXPECT_EQ(errorOf(tiles(json::Object{{"rows", 4}, {"columns", 4}, {"permille", 900}})), "no error");
  EXPECT_EQ(errorOf(tiles(json::Object{{"rows", 4}, {"columns", 4}, {"permille", 1001}})),
            "machine 'x.json': field 'compute.matmul_tiles.sizes[0].permille': expected at most 1000, got 1001");
  EXPECT_EQ(errorOf(tiles(json::Object{{"rows", 1 << 21}, {"columns", 4}})),
            "machine 'x.json': field 'compute.matmul_tiles.sizes[0].rows': expected at most 1048576, got 2097152");
  EXPECT_EQ(errorOf(tiles(json::Object{{"rows", 4}})),
            "machine 'x.json': field 'compute.matmul_tiles.sizes[0].columns': expected an integer of at least 1");
  EXPECT_EQ(errorOf(edited("compute.matmul_tiles", json::Object{{"units", 2}})),
            "machine 'x.json': field 'compute.matmul_tiles.sizes': expected at least one size");
  EXPECT_EQ(errorOf(edited("compute.matmul_tiles", json::Object{{"depth", 2}})),
            "machine 'x.json': field 'compute.matmul_tiles.units': expected an integer of at least 1");
  EXPECT_EQ(errorOf(edited("overheads", json::Object{{"hop_ns", -1}})),
            "machine 'x.json': field 'overheads.hop_ns': expected an integer of at least 0");
}

TEST(MachineModel, KeepsErrorBars) {
  auto parse = [](json::Object point, json::Object op) {
    json::Value table = json::Object{{"kind", "all_reduce"},
                                     {"ranks", 2},
                                     {"nodes", 1},
                                     {"flags", json::Array{"skew", "unstable"}},
                                     {"points", json::Array{std::move(point)}}};
    std::string text = edited("collectives", json::Array{std::move(table)});
    json::Value document = llvm::cantFail(json::parse(text));
    (*document.getAsObject())["ops"] = json::Array{std::move(op)};
    text.clear();
    llvm::raw_string_ostream(text) << document;
    return text;
  };
  json::Object bare{{"bytes", 8}, {"ns", 50}}, op{{"name", "a.b"}, {"ns", 7}};
  MachineModel machine = llvm::cantFail(MachineModel::parse(parse(bare, op)));
  EXPECT_FALSE(machine.hasErrorBars());
  EXPECT_EQ(machine.collectives[0].flags, (std::vector<std::string>{"skew", "unstable"}));

  machine = llvm::cantFail(MachineModel::parse(
      parse(json::Object{{"bytes", 8}, {"ns", 50}, {"lo_ns", 40}, {"hi_ns", 70}, {"n", 20}, {"rejected", 1}}, op)));
  EXPECT_TRUE(machine.hasErrorBars());
  MeasuredPoint point = machine.collectives[0].points[0];
  EXPECT_EQ(std::tuple(point.lo, point.hi, point.n, point.rejected), std::tuple(40, 70, 20, 1));

  machine = llvm::cantFail(
      MachineModel::parse(parse(bare, json::Object{{"name", "a.b"}, {"ns", 7}, {"hi_ns", 9}, {"n", 3}})));
  EXPECT_TRUE(machine.hasErrorBars());
  EXPECT_EQ(std::tuple(machine.ops[0].lo, machine.ops[0].hi, machine.ops[0].n), std::tuple(7, 9, 3));

  EXPECT_EQ(errorOf(parse(json::Object{{"bytes", 8}, {"ns", 50}, {"lo_ns", 51}}, op)),
            "machine 'x.json': field 'collectives[0].points[0].lo_ns': expected at most 'ns' (50), got 51");
  EXPECT_EQ(errorOf(parse(json::Object{{"bytes", 8}, {"ns", 50}, {"hi_ns", 49}}, op)),
            "machine 'x.json': field 'collectives[0].points[0].hi_ns': expected at least 'ns' (50), got 49");
  EXPECT_EQ(errorOf(parse(bare, json::Object{{"name", "a.b"}, {"ns", 7}, {"n", -1}})),
            "machine 'x.json': field 'ops[0].n': expected an integer of at least 0");
}

TEST(MachineModel, RefusesWhatIsNoObject) {
  EXPECT_EQ(errorOf("[]"), "machine 'x.json': expected a JSON object");
  EXPECT_NE(errorOf("{").find("machine 'x.json': "), std::string::npos);
}

TEST(MachineModel, SaysWhichProfilesThereAre) {
  llvm::Expected<MachineModel> machine = MachineModel::load("no-such-machine");
  ASSERT_FALSE(machine);
  std::string error = llvm::toString(machine.takeError());
  EXPECT_NE(error.find("machine 'no-such-machine': expected the path of a .json file or one of "), std::string::npos)
      << error;
  EXPECT_NE(error.find("h100-sxm"), std::string::npos) << error;
}

TEST(MachineModel, FindsProfilesOfTheEnvironmentFirst) {
  llvm::SmallString<128> directory;
  ASSERT_FALSE(llvm::sys::fs::createUniqueDirectory("machines", directory));
  llvm::SmallString<128> file(directory);
  llvm::sys::path::append(file, "h100-sxm.json");
  std::error_code error;
  llvm::raw_fd_ostream(file, error) << kMinimal;
  ASSERT_FALSE(error);
  setenv("COMMSCHED_MACHINE_PATH", directory.c_str(), 1);
  EXPECT_EQ(llvm::cantFail(MachineModel::load("h100-sxm")).name, "tiny");
  unsetenv("COMMSCHED_MACHINE_PATH");
  EXPECT_EQ(llvm::cantFail(MachineModel::load("h100-sxm")).name, "h100-sxm");
  EXPECT_EQ(llvm::cantFail(MachineModel::load(file)).name, "tiny");
  llvm::sys::fs::remove(file);
  llvm::sys::fs::remove(directory);
}

/// Reports objects that hold numbers and no source. `covered`: a parent has one.
void checkSources(const json::Value &value, const std::string &path) {
  if (const json::Array *array = value.getAsArray()) {
    for (const json::Value &element : *array)
      checkSources(element, path + "[]");
  } else if (const json::Object *object = value.getAsObject()) {
    for (const auto &[key, child] : *object) {
      if (child.kind() == json::Value::Number && key != "schema_version")
        EXPECT_TRUE(object->get("source")) << path << "." << key.str() << " has no source";
      checkSources(child, path + "." + key.str());
    }
  }
}

TEST(MachineModel, ShippedProfilesAreCanonicalAndGiveTheirSources) {
  std::vector<std::string> names = MachineModel::available();
  for (const char *name : {"a100-sxm", "b200-sxm", "cpu-mpi", "h100-sxm", "h100-sxm-tiles", "h200-sxm"})
    EXPECT_TRUE(llvm::is_contained(names, name)) << name;
  for (const std::string &name : names) {
    llvm::Expected<MachineModel> machine = MachineModel::load(name);
    ASSERT_TRUE(static_cast<bool>(machine)) << llvm::toString(machine.takeError());
    EXPECT_EQ(machine->name, name);
    // No shipped profile lets two groups have the same links for themselves.
    EXPECT_NE(machine->lanes, LaneSharing::PerGroup) << name;
    std::string text = machine->toJSON();
    EXPECT_EQ(llvm::cantFail(MachineModel::parse(text)).toJSON(), text);
    checkSources(llvm::cantFail(json::parse(text)), name);
  }
  // The files in the tree are what toJSON prints, after the name of the schema.
  std::string path = MachineModel::searchPath().back() + "/h100-sxm.json";
  auto file = llvm::MemoryBuffer::getFile(path);
  ASSERT_TRUE(static_cast<bool>(file));
  llvm::StringRef text = (*file)->getBuffer();
  ASSERT_TRUE(text.consume_front("{\n  \"$schema\": \"../schemas/profile.schema.json\",\n"));
  EXPECT_EQ(llvm::cantFail(MachineModel::load(path)).toJSON(), "{\n" + text.str());
}

// The schema's place is for editors, and only at the top. Profiles that are derived from this one are elsewhere.
TEST(MachineModel, ReadsTheNameOfASchemaAndForgetsIt) {
  MachineModel machine = llvm::cantFail(MachineModel::parse(edited("$schema", "../schemas/profile.schema.json")));
  EXPECT_EQ(machine.toJSON(), llvm::cantFail(MachineModel::parse(kMinimal)).toJSON());
  EXPECT_EQ(errorOf(edited("$schema", 1)), "machine 'x.json': field '$schema': expected a non-empty string");
  EXPECT_EQ(errorOf(edited("node.$schema", "x")), "machine 'x.json': field 'node.$schema': unknown field");
  EXPECT_EQ(errorOf(edited("$id", "x")), "machine 'x.json': field '$id': unknown field");
}

// The profile with waves of tiles is the other one in everything else.
TEST(MachineModel, TheProfileWithTilesDiffersInThemAlone) {
  auto document = [](const char *name) {
    return llvm::cantFail(json::parse(llvm::cantFail(MachineModel::load(name)).toJSON()));
  };
  json::Value with = document("h100-sxm-tiles"), without = document("h100-sxm");
  json::Object &object = *with.getAsObject();
  EXPECT_TRUE(object.getObject("compute")->erase("matmul_tiles"));
  for (const char *key : {"name", "description"})
    object[key] = *without.getAsObject()->getString(key);
  EXPECT_EQ(with, without);
}

} // namespace
