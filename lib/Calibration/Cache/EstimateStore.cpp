//===- EstimateStore.cpp - Measured times by name, kept for later runs ------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// A map in a cache file.
//
//===------------------------------------------------------------------------------------------===//

#include "CommSched/Calibration/EstimateStore.h"
#include "SharedCache.h"
#include "llvm/Support/JSON.h"
#include "llvm/Support/raw_ostream.h"
#include <cstring>

using namespace commsched;

namespace json = llvm::json;

llvm::Expected<std::string> commsched::broadcastText(Bench &bench, const std::string &text) {
  auto bytes = static_cast<int64_t>(bench.rank() == 0 ? text.size() : 0);
  llvm::Expected<std::vector<std::vector<int64_t>>> sizes = bench.gather(bytes);
  if (!sizes)
    return sizes.takeError();
  size_t size = (*sizes)[0][0];
  std::vector<int64_t> words((size + 7) / 8);
  if (words.empty())
    return std::string();
  if (bench.rank() == 0)
    std::memcpy(words.data(), text.data(), size);
  llvm::Expected<std::vector<std::vector<int64_t>>> all = bench.gather(words);
  if (!all)
    return all.takeError();
  return std::string(reinterpret_cast<const char *>((*all)[0].data()), size);
}

std::string EstimateStore::toText(const std::map<std::string, StoredEstimate> &all) const {
  json::Object entries;
  for (const auto &[key, stored] : all)
    entries[key] = json::Array{stored.time.value, stored.time.lo,       stored.time.hi,
                               stored.time.n,     stored.time.rejected, stored.isSkewed ? 1 : 0};
  std::string text;
  llvm::raw_string_ostream(text) << json::Value(
      json::Object{{"fingerprint", fingerprint}, {"estimates", std::move(entries)}});
  return text;
}

llvm::Expected<std::map<std::string, StoredEstimate>> EstimateStore::parse(llvm::StringRef text) const {
  auto refuse = [](const llvm::Twine &why) { return llvm::createStringError("not a calibration: " + why); };
  llvm::Expected<json::Value> document = json::parse(text);
  if (!document)
    return refuse(llvm::toString(document.takeError()));
  const json::Object *root = document->getAsObject();
  const json::Object *entries = root ? root->getObject("estimates") : nullptr;
  if (!entries || root->getString("fingerprint") != fingerprint)
    return refuse("expected an object with the fingerprint '" + fingerprint + "' and estimates");
  std::map<std::string, StoredEstimate> result;
  for (const auto &[key, value] : *entries) {
    const json::Array *numbers = value.getAsArray();
    int64_t fields[6];
    if (!numbers || numbers->size() != std::size(fields))
      return refuse("expected 6 numbers for '" + llvm::StringRef(key) + "'");
    for (size_t i = 0; i < std::size(fields); ++i) {
      std::optional<int64_t> field = (*numbers)[i].getAsInteger();
      if (!field || *field < 0)
        return refuse("expected 6 integers for '" + llvm::StringRef(key) + "'");
      fields[i] = *field;
    }
    result[key.str()] = {{fields[0], fields[1], fields[2], fields[3], fields[4]}, fields[5] != 0};
  }
  return result;
}

llvm::Error EstimateStore::load(bool fresh) {
  return SharedCache(bench, cache, warnings).read(fresh, [&](llvm::StringRef text) -> llvm::Error {
    llvm::Expected<std::map<std::string, StoredEstimate>> parsed = parse(text);
    if (!parsed)
      return parsed.takeError();
    known = std::move(*parsed);
    return llvm::Error::success();
  });
}

std::optional<StoredEstimate> EstimateStore::find(const std::string &key) const {
  auto found = known.find(key);
  return found == known.end() ? std::nullopt : std::optional(found->second);
}

void EstimateStore::put(const std::string &key, const StoredEstimate &estimate) {
  known[key] = estimate;
  SharedCache(bench, cache, warnings).write([&](std::optional<std::string> text) {
    std::map<std::string, StoredEstimate> all;
    if (text) {
      if (llvm::Expected<std::map<std::string, StoredEstimate>> stored = parse(*text))
        all = std::move(*stored);
      else
        llvm::consumeError(stored.takeError());
    }
    // What this run measured is newer.
    all[key] = estimate;
    return toText(all);
  });
}
