//===- Profile.cpp - A machine profile with what was measured ---------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Curves as the `collectives` of a profile, and as the text of a cache file.
//
//===------------------------------------------------------------------------------------------===//

#include "CommSched/Calibration/Profile.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/JSON.h"
#include "llvm/Support/raw_ostream.h"
#include <map>

using namespace commsched;

namespace json = llvm::json;

static json::Object toJSON(const CalibratedPoint &point) {
  json::Object object{{"bytes", point.bytes},   {"ns", point.time.value}, {"lo_ns", point.time.lo},
                      {"hi_ns", point.time.hi}, {"n", point.time.n},      {"rejected", point.time.rejected}};
  if (point.operations > 1)
    object["single_ns"] = point.single;
  return object;
}

/// A table of a profile.
static json::Object toJSON(const CalibratedCurve &curve, bool anyElement) {
  json::Array points;
  json::Array flags;
  bool skewed = false, unstable = false;
  for (const CalibratedPoint &point : curve.points) {
    points.push_back(toJSON(point));
    skewed |= point.isSkewed;
    unstable |= point.time.isUnstable();
  }
  if (skewed)
    flags.push_back("skew");
  if (unstable)
    flags.push_back("unstable");
  json::Object table{{"kind", stringify(curve.probe.kind)},
                     {"ranks", curve.probe.shape.ranks},
                     {"nodes", curve.probe.shape.nodes},
                     {"points", std::move(points)}};
  if (!anyElement)
    table["element"] = stringify(curve.probe.element);
  if (!flags.empty())
    table["flags"] = std::move(flags);
  return table;
}

/// Whether a table of the base says the same thing as `curve`.
static bool isSameTable(const json::Object &table, const CalibratedCurve &curve, bool anyElement) {
  llvm::StringRef element = table.getString("element").value_or("any");
  return table.getString("kind") == stringify(curve.probe.kind) && !table.get("group") &&
         table.getInteger("ranks") == curve.probe.shape.ranks && table.getInteger("nodes") == curve.probe.shape.nodes &&
         element == (anyElement ? llvm::StringRef("any") : stringify(curve.probe.element));
}

/// Whether only one element type was measured: then its times stand for all types.
static bool hasOneElement(llvm::ArrayRef<CalibratedCurve> curves) {
  return llvm::all_of(
      curves, [&](const CalibratedCurve &curve) { return curve.probe.element == curves.front().probe.element; });
}

/// The products to which the rates were fitted.
static void describeProducts(const Roofline &roofline, json::Object &result) {
  json::Object products;
  for (const ProductRate &rate : roofline.products) {
    json::Array points;
    for (auto [flops, ns] : rate.points)
      points.push_back(json::Object{{"flops", static_cast<int64_t>(flops)}, {"ns", ns}});
    products[stringify(rate.element)] = std::move(points);
  }
  if (!products.empty())
    result["products"] = std::move(products);
}

static json::Object describe(const Calibration &calibration) {
  json::Object result;
  for (const auto &[key, text] : calibration.facts)
    result[key] = text;
  json::Array skipped, errors;
  for (const CalibratedCurve &curve : calibration.curves) {
    json::Object what{{"kind", stringify(curve.probe.kind)},
                      {"ranks", curve.probe.shape.ranks},
                      {"nodes", curve.probe.shape.nodes},
                      {"element", stringify(curve.probe.element)}};
    if (!curve.skipped.empty()) {
      json::Object left = what;
      left["reason"] = curve.skipped;
      skipped.push_back(std::move(left));
    }
    if (std::vector<int64_t> misses = interpolationErrors(curve); !misses.empty()) {
      what["p50_permille"] = misses[misses.size() / 2];
      what["p95_permille"] = misses[misses.size() * 95 / 100];
      errors.push_back(std::move(what));
    }
  }
  auto skip = [&](llvm::StringRef what, llvm::StringRef reason) {
    skipped.push_back(json::Object{{"what", what.str()}, {"reason", reason.str()}});
  };
  for (const CalibratedOp &op : calibration.ops)
    if (!op.skipped.empty())
      skip((op.probe.name + " (" + llvm::join(op.probe.shapes, ", ") + ")"), op.skipped);
  for (const ContentionPoint &point : calibration.contention)
    if (!point.skipped.empty())
      skip((stringify(point.probe.collective.kind) + " of " + llvm::Twine(point.probe.collective.bytes) +
            " bytes beside " + stringify(point.probe.against))
               .str(),
           point.skipped);
  json::Array pairs;
  for (const PairPoint &pair : calibration.pairs) {
    llvm::StringRef kind = stringify(pair.probe.kind);
    if (pair.skipped.empty())
      pairs.push_back(json::Object{{"kind", kind},
                                   {"bytes", pair.probe.bytes},
                                   {"ranks", pair.probe.shape.ranks},
                                   {"nodes", pair.probe.shape.nodes},
                                   {"beside_ranks", pair.beside.shape.ranks},
                                   {"beside_nodes", pair.beside.shape.nodes},
                                   {"alone_ns", pair.alone.value},
                                   {"beside_alone_ns", pair.besideAlone.value},
                                   {"both_ns", pair.both.value},
                                   {"both_lo_ns", pair.both.lo},
                                   {"both_hi_ns", pair.both.hi},
                                   {"permille", pair.permille()}});
    else
      skip((kind + " of " + llvm::Twine(pair.probe.bytes) + " bytes beside another").str(), pair.skipped);
  }
  if (!pairs.empty())
    result["pairs"] = std::move(pairs);
  for (const auto *list : {&calibration.roofline.skipped, &calibration.skipped})
    for (const auto &[what, reason] : *list)
      skip(what, reason);
  result["skipped"] = std::move(skipped);
  describeProducts(calibration.roofline, result);
  result["interpolation_error"] = std::move(errors);
  return result;
}

/// The object at `key`, made if there is none.
static json::Object &childOf(json::Object &root, llvm::StringRef key) {
  if (!root.getObject(key))
    root[key] = json::Object();
  return *root.getObject(key);
}

static constexpr llvm::StringLiteral kSource = "measured by comm-calibrate";
static constexpr double kGiga = 1e9, kTera = 1e12;

/// Puts what was measured of an operation in the place of what the base says.
static void mergeOps(llvm::ArrayRef<CalibratedOp> ops, json::Object &root) {
  auto shapesOf = [](const CalibratedOp &op) {
    json::Array shapes;
    for (const std::string &shape : op.probe.shapes)
      shapes.push_back(shape);
    return shapes;
  };
  std::map<std::string, json::Value> entries;
  auto keyOf = [](const json::Object &entry) {
    std::string key = entry.getString("name").value_or("").str();
    llvm::raw_string_ostream os(key);
    for (const char *field : {"shapes", "form"})
      if (const json::Value *value = entry.get(field))
        os << *value;
    return key;
  };
  if (const json::Array *old = root.getArray("ops"))
    for (const json::Value &entry : *old)
      entries.try_emplace(keyOf(*entry.getAsObject()), entry);
  for (const CalibratedOp &op : ops) {
    if (!op.skipped.empty())
      continue;
    json::Object entry{{"name", op.probe.name}, {"shapes", shapesOf(op)}, {"ns", op.time.value},
                       {"lo_ns", op.time.lo},   {"hi_ns", op.time.hi},    {"n", op.time.n}};
    if (!op.probe.form.empty())
      entry["form"] = op.probe.form;
    std::string key = keyOf(entry);
    entries.insert_or_assign(key, json::Value(std::move(entry)));
  }
  json::Array all;
  for (auto &[key, entry] : entries)
    all.push_back(std::move(entry));
  root["ops"] = std::move(all);
}

static void mergeRoofline(const Roofline &roofline, json::Object &root) {
  json::Object &compute = childOf(root, "compute");
  for (const ProductRate &rate : roofline.products) {
    json::Object &sustained = childOf(compute, "sustained_tflops");
    sustained[stringify(rate.element)] = rate.flopsPerSecond / kTera;
    sustained["source"] = kSource;
    childOf(compute, "half_flops")[stringify(rate.element)] = static_cast<int64_t>(rate.halfFlops);
  }
  if (roofline.launch > 0) {
    compute["launch_ns"] = roofline.launch;
    json::Object &overheads = childOf(root, "overheads");
    overheads["record_ns"] = roofline.calls.record;
    overheads["wait_ns"] = roofline.calls.wait;
    overheads["hop_ns"] = roofline.calls.hop;
  }
  if (roofline.copyBytesPerSecond <= 0)
    return;
  root["copy"] = json::Object{
      {"launch_ns", roofline.copyLaunch}, {"bandwidth_gbps", roofline.copyBytesPerSecond / kGiga}, {"source", kSource}};
  json::Object &memory = childOf(root, "memory");
  memory["bandwidth_gbps"] = roofline.copyBytesPerSecond / kGiga;
  memory["efficiency_permille"] = 1000;
  memory["source"] = kSource;
}

static void mergeContention(llvm::ArrayRef<ContentionPoint> points, json::Object &root) {
  std::map<std::string, json::Value> entries;
  auto keyOf = [](const json::Object &entry) {
    std::string key;
    llvm::raw_string_ostream os(key);
    for (const char *field : {"kind", "bytes", "ctas", "against"})
      if (const json::Value *value = entry.get(field))
        os << *value << ' ';
    return key;
  };
  if (const json::Array *old = root.getArray("contention"))
    for (const json::Value &entry : *old)
      entries.try_emplace(keyOf(*entry.getAsObject()), entry);
  for (const ContentionPoint &point : points) {
    if (!point.skipped.empty())
      continue;
    json::Object entry{{"kind", stringify(point.probe.collective.kind)},
                       {"bytes", point.probe.collective.bytes},
                       {"ctas", point.probe.ctas},
                       {"against", stringify(point.probe.against)},
                       {"compute_permille", point.computePermille()},
                       {"collective_permille", point.collectivePermille()}};
    json::Array flags;
    if (point.isSkewed)
      flags.push_back("skew");
    if (point.isUnstable())
      flags.push_back("unstable");
    if (!flags.empty())
      entry["flags"] = std::move(flags);
    std::string key = keyOf(entry);
    entries.insert_or_assign(key, json::Value(std::move(entry)));
  }
  if (entries.empty())
    return;
  json::Array all;
  for (auto &[key, entry] : entries)
    all.push_back(std::move(entry));
  root["contention"] = std::move(all);
}

/// Puts the parts of links that were measured in the place of what the base says of the same groups. Two axes of one
/// pair may have the same shape, and the same kind may be measured from both; the larger part counts.
static void mergeShares(llvm::ArrayRef<PairPoint> pairs, json::Object &root) {
  std::map<std::tuple<std::string, int64_t, int64_t, int64_t>, int64_t> measured, shares;
  for (const PairPoint &pair : pairs)
    for (const CollectiveProbe &probe : {pair.probe, pair.beside})
      if (pair.skipped.empty()) {
        int64_t &part = measured[{stringify(probe.kind).str(), probe.shape.nodes, probe.shape.ranks, probe.bytes}];
        part = std::max(part, pair.partPermille());
      }
  if (measured.empty())
    return;
  json::Object &resources = childOf(root, "resources");
  if (const json::Array *old = resources.getArray("shares"))
    for (const json::Value &value : *old) {
      const json::Object &entry = *value.getAsObject();
      shares[{entry.getString("kind")->str(), *entry.getInteger("nodes"), entry.getInteger("ranks").value_or(0),
              *entry.getInteger("bytes")}] = *entry.getInteger("permille");
    }
  for (const auto &[key, part] : measured)
    shares[key] = part;
  json::Array all;
  for (const auto &[key, part] : shares) {
    const auto &[kind, nodes, ranks, bytes] = key;
    json::Object entry{{"kind", kind}, {"bytes", bytes}, {"nodes", nodes}, {"permille", part}};
    if (ranks > 0)
      entry["ranks"] = ranks;
    all.push_back(std::move(entry));
  }
  resources["shares"] = std::move(all);
}

llvm::Expected<MachineModel> commsched::mergeCalibration(const MachineModel &base, const Calibration &calibration,
                                                         llvm::StringRef name) {
  llvm::Expected<json::Value> document = json::parse(base.toJSON());
  if (!document)
    return document.takeError();
  json::Object &root = *document->getAsObject();
  bool anyElement = hasOneElement(calibration.curves);
  json::Array tables;
  if (const json::Array *old = root.getArray("collectives"))
    for (const json::Value &table : *old)
      if (llvm::none_of(calibration.curves, [&](const CalibratedCurve &curve) {
            return !curve.points.empty() && isSameTable(*table.getAsObject(), curve, anyElement);
          }))
        tables.push_back(table);
  std::vector<int64_t> issues;
  for (const CalibratedCurve &curve : calibration.curves) {
    if (curve.points.empty())
      continue;
    tables.push_back(toJSON(curve, anyElement));
    issues.push_back(curve.points.front().issue);
  }
  root["collectives"] = std::move(tables);
  if (!issues.empty())
    childOf(root, "overheads")["issue_ns"] = medianOf(issues);
  mergeOps(calibration.ops, root);
  mergeRoofline(calibration.roofline, root);
  mergeContention(calibration.contention, root);
  mergeShares(calibration.pairs, root);
  root["name"] = name;
  json::Object described = describe(calibration);
  // What is not measured anew stays.
  if (const json::Object *old = root.getObject("calibration"); old && !described.get("pairs"))
    if (const json::Array *pairs = old->getArray("pairs"))
      described["pairs"] = json::Array(*pairs);
  root["calibration"] = std::move(described);
  std::string text;
  llvm::raw_string_ostream(text) << *document;
  return MachineModel::parse(text, name);
}

//===- Cache ----------------------------------------------------------------------------------===//

std::string commsched::toCacheText(llvm::ArrayRef<CalibratedCurve> curves, llvm::StringRef fingerprint) {
  json::Array list;
  for (const CalibratedCurve &curve : curves) {
    json::Object entry = toJSON(curve, /*anyElement=*/false);
    entry["ranks_per_node"] = curve.probe.shape.ranksPerNode;
    for (auto [point, json] : llvm::zip_equal(curve.points, *entry.getArray("points"))) {
      (*json.getAsObject())["issue_ns"] = point.issue;
      (*json.getAsObject())["operations"] = point.operations;
      (*json.getAsObject())["single_ns"] = point.single;
      (*json.getAsObject())["skewed"] = point.isSkewed;
    }
    list.push_back(std::move(entry));
  }
  std::string text;
  llvm::raw_string_ostream(text) << json::Value(
      json::Object{{"fingerprint", fingerprint}, {"curves", std::move(list)}});
  return text;
}

/// A point as toCacheText writes it; none for anything else.
static std::optional<CalibratedPoint> parsePoint(const json::Value &value) {
  const json::Object *object = value.getAsObject();
  if (!object)
    return std::nullopt;
  std::optional<int64_t> fields[9];
  const char *names[] = {"bytes", "ns", "lo_ns", "hi_ns", "n", "rejected", "issue_ns", "operations", "single_ns"};
  for (auto [field, name] : llvm::zip_equal(fields, names)) {
    field = object->getInteger(name);
    if (!field || *field < 0)
      return std::nullopt;
  }
  std::optional<bool> skewed = object->getBoolean("skewed");
  if (!skewed || *fields[1] == 0)
    return std::nullopt;
  return CalibratedPoint{*fields[0], {*fields[1], *fields[2], *fields[3], *fields[4], *fields[5]},
                         *fields[6], *skewed,
                         *fields[7], *fields[8]};
}

static std::optional<CalibratedCurve> parseCurve(const json::Value &value) {
  const json::Object *object = value.getAsObject();
  if (!object || !object->getArray("points"))
    return std::nullopt;
  std::optional<CollectiveKind> kind = parseCollectiveKind(object->getString("kind").value_or(""));
  std::optional<ElementType> element = parseElementType(object->getString("element").value_or(""));
  std::optional<int64_t> ranks = object->getInteger("ranks"), nodes = object->getInteger("nodes"),
                         perNode = object->getInteger("ranks_per_node");
  if (!kind || !element || !ranks || !nodes || !perNode)
    return std::nullopt;
  CalibratedCurve curve{{*kind, {*ranks, *nodes, *perNode}, *element, 0}, {}, ""};
  for (const json::Value &entry : *object->getArray("points")) {
    std::optional<CalibratedPoint> point = parsePoint(entry);
    if (!point || (!curve.points.empty() && point->bytes <= curve.points.back().bytes))
      return std::nullopt;
    curve.points.push_back(*point);
  }
  return curve;
}

llvm::Expected<std::vector<CalibratedCurve>> commsched::parseCacheText(llvm::StringRef text,
                                                                       llvm::StringRef fingerprint) {
  auto refuse = [](const llvm::Twine &why) { return llvm::createStringError("not a calibration: " + why); };
  llvm::Expected<json::Value> document = json::parse(text);
  if (!document)
    return refuse(llvm::toString(document.takeError()));
  const json::Object *root = document->getAsObject();
  if (!root || root->getString("fingerprint") != fingerprint || !root->getArray("curves"))
    return refuse("expected an object with the fingerprint '" + fingerprint + "' and curves");
  std::vector<CalibratedCurve> curves;
  for (const auto &[index, value] : llvm::enumerate(*root->getArray("curves"))) {
    std::optional<CalibratedCurve> curve = parseCurve(value);
    if (!curve)
      return refuse("curve " + llvm::Twine(index) + " has a field that is missing or wrong");
    curves.push_back(std::move(*curve));
  }
  return curves;
}
