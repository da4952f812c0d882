//===- Session.cpp - A whole calibration, with what is known already --------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Reading the cache, measuring what it lacks, and storing it curve by curve, so that a run that ends early loses
// little.
//
//===------------------------------------------------------------------------------------------===//

#include "CommSched/Calibration/Session.h"
#include "Cache/SharedCache.h"
#include "CommSched/Calibration/Profile.h"
#include "llvm/ADT/STLExtras.h"

using namespace commsched;

static bool isSameQuestion(const CollectiveProbe &a, const CollectiveProbe &b) {
  return a.kind == b.kind && a.shape == b.shape && a.element == b.element;
}

/// Adds the points of `newer` to those of `curves`. Of two points of one size, the one with more samples stays.
static void mergeInto(std::vector<CalibratedCurve> &curves, const CalibratedCurve &newer) {
  auto at =
      llvm::find_if(curves, [&](const CalibratedCurve &curve) { return isSameQuestion(curve.probe, newer.probe); });
  if (at == curves.end()) {
    curves.push_back(newer);
    curves.back().skipped.clear();
    return;
  }
  for (const CalibratedPoint &point : newer.points) {
    auto place = llvm::lower_bound(at->points, point.bytes,
                                   [](const CalibratedPoint &known, Bytes bytes) { return known.bytes < bytes; });
    if (place == at->points.end() || place->bytes != point.bytes)
      at->points.insert(place, point);
    else if (place->time.n <= point.time.n)
      *place = point;
  }
}

namespace {
class Session {
public:
  Session(Bench &bench, const CalibrationSessionOptions &options,
          llvm::function_ref<void(const std::string &)> progress)
      : bench(bench), options(options), cache(bench, options.cache, answers.warnings),
        calibrator(bench, options.calibrator, progress) {}

  /// Reads what is known. Collective.
  llvm::Error begin();
  CalibratedCurve answer(const CalibrationQuestion &question);
  CalibrationAnswers takeAnswers() {
    answers.known = toCacheText(known, fingerprint);
    return std::move(answers);
  }

private:
  llvm::Error take(llvm::StringRef text);
  void store(const CalibratedCurve &curve);

  Bench &bench;
  const CalibrationSessionOptions &options;
  CalibrationAnswers answers;
  SharedCache cache;
  Calibrator calibrator;
  std::string fingerprint;
  std::vector<CalibratedCurve> known;
};
} // namespace

/// Adds curves that were measured before. The error says that `text` is no calibration.
llvm::Error Session::take(llvm::StringRef text) {
  llvm::Expected<std::vector<CalibratedCurve>> curves = parseCacheText(text, fingerprint);
  if (!curves)
    return curves.takeError();
  for (const CalibratedCurve &curve : *curves)
    mergeInto(known, curve);
  return llvm::Error::success();
}

llvm::Error Session::begin() {
  llvm::Expected<std::string> ofFirst = broadcastText(bench, options.fingerprint);
  if (!ofFirst)
    return ofFirst.takeError();
  fingerprint = *ofFirst;
  auto takeText = [&](llvm::StringRef text) { return take(text); };
  if (llvm::Error error = cache.read(options.fresh, takeText))
    return error;
  return cache.share(bench.rank() == 0 && !options.fresh ? options.known : "", takeText);
}

/// Stores a curve beside what other processes have stored meanwhile.
void Session::store(const CalibratedCurve &curve) {
  cache.write([&](std::optional<std::string> text) {
    std::vector<CalibratedCurve> all;
    if (text) {
      if (llvm::Expected<std::vector<CalibratedCurve>> stored = parseCacheText(*text, fingerprint))
        all = std::move(*stored);
      else
        llvm::consumeError(stored.takeError());
    }
    mergeInto(all, curve);
    return toCacheText(all, fingerprint);
  });
}

CalibratedCurve Session::answer(const CalibrationQuestion &question) {
  if (!question.skipped.empty())
    return {question.probe, {}, question.skipped};
  std::vector<CalibratedPoint> points;
  for (const CalibratedCurve &curve : known)
    if (isSameQuestion(curve.probe, question.probe))
      points = curve.points;
  auto before = static_cast<int64_t>(points.size());
  llvm::Expected<CalibratedCurve> curve =
      question.sizes.empty() ? calibrator.measureCurve(question.probe, question.least, question.most, std::move(points))
                             : calibrator.measureSizes(question.probe, question.sizes, std::move(points));
  if (!curve)
    return {question.probe, {}, llvm::toString(curve.takeError())};
  auto measured = static_cast<int64_t>(curve->points.size()) - before;
  answers.measured += measured;
  if (measured > 0) {
    mergeInto(known, *curve);
    store(*curve);
  }
  return std::move(*curve);
}

llvm::Expected<CalibrationAnswers> commsched::runCalibration(Bench &bench,
                                                             llvm::ArrayRef<CalibrationQuestion> questions,
                                                             const CalibrationSessionOptions &options,
                                                             llvm::function_ref<void(const std::string &)> progress) {
  Session session(bench, options, progress);
  if (llvm::Error error = session.begin())
    return std::move(error);
  std::vector<CalibratedCurve> curves;
  for (const CalibrationQuestion &question : questions)
    curves.push_back(session.answer(question));
  CalibrationAnswers answers = session.takeAnswers();
  answers.curves = std::move(curves);
  return answers;
}
