// The figures of a session in the gRPC message Session, as tallyd writes and tallyctl reads them.
//
// A figure travels in the field of its name if control.proto has one, else in the map `figures`: one that is new needs
// no new field, and tallyctl shows also what only a newer tallyd counts. A field of type double has the figure as
// people see it (FigureRow::one). Of rows whose entries have names, the map has each that is not 0 as "name.entry",
// too. Figures by preemptibility are not here: they have a message of their own, CoveredTime.
#pragma once

#include <google/protobuf/descriptor.h>

#include <cstdint>
#include <numeric>
#include <string>

#include "proto/control/control.pb.h"
#include "proto/control/session_figures.h"

namespace tally::control {

// Null: it has no field of its own.
inline const google::protobuf::FieldDescriptor* FieldOf(const std::string& figure) {
  return v1::Session::descriptor()->FindFieldByName(figure);
}

inline void SetFigure(const std::string& name, uint64_t value, uint64_t one, v1::Session* session) {
  const auto* field = FieldOf(name);
  if (field == nullptr) {
    (*session->mutable_figures())[name] = value;
  } else if (field->cpp_type() == google::protobuf::FieldDescriptor::CPPTYPE_DOUBLE) {
    session->GetReflection()->SetDouble(session, field, static_cast<double>(value) / static_cast<double>(one));
  } else {
    session->GetReflection()->SetUInt64(session, field, value);
  }
}

// "window_batches.idle".
inline std::string EntryKey(const std::string& figure, const std::string& entry) { return figure + "." + entry; }

// Of a row with several entries all together.
inline void SetFigures(const SessionFigures& figures, v1::Session* session) {
  for (const Figure figure : kAllFigures) {
    if (figure.row().entries == FigureEntries::kByPreemptibility) continue;
    const auto entries = figures.entries(figure);
    SetFigure(figure.row().name, std::accumulate(entries.begin(), entries.end(), uint64_t{0}), figure.row().one,
              session);
    const auto names = EntryNames(figure.row().entries);
    for (size_t i = 0; i < names.size(); ++i) {
      if (entries[i] != 0) (*session->mutable_figures())[EntryKey(figure.row().name, names[i])] = entries[i];
    }
  }
}

// Calls `visit` with the name and the value, uint64_t or double, of every figure.
template <typename Visit>
void VisitFigures(const v1::Session& session, const Visit& visit) {
  for (const Figure figure : kAllFigures) {
    const std::string name = figure.row().name;
    const auto* field = FieldOf(name);
    if (field == nullptr) continue;  // in the map, or by preemptibility
    if (field->cpp_type() == google::protobuf::FieldDescriptor::CPPTYPE_DOUBLE) {
      visit(name, session.GetReflection()->GetDouble(session, field));
    } else {
      visit(name, session.GetReflection()->GetUInt64(session, field));
    }
  }
  for (const auto& [name, value] : session.figures()) visit(name, value);
}

}  // namespace tally::control
