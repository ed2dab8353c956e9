#include "ptx-transforms/syntax/printer.h"

#include "ptx-transforms/syntax/node_text.h"

namespace tally::ptx_transforms {
namespace {

// Writes a Module: source bytes for what was not touched, collected into as few copies as possible.
class ModuleWriter {
 public:
  ModuleWriter(const Module& module, size_t size) : source_(module.source()) { out_.reserve(size); }

  void AddItem(const Item& item);
  std::string Finish(TextRange trailing);

 private:
  void AddSource(uint32_t begin, uint32_t end);
  void Flush();
  // A new line for text that has no place in the source, or the white space before the place that it has.
  void StartFresh(const SourceSpan& span, int depth);
  void AddStatement(const Statement& statement, int depth);
  void AddBody(const std::vector<Statement>& statements, const SourceSpan& open, const SourceSpan& close, int depth);

  std::string_view source_;
  std::string out_;
  uint32_t pending_begin_ = 0;
  uint32_t pending_end_ = 0;
};

void ModuleWriter::AddSource(uint32_t begin, uint32_t end) {
  if (begin != pending_end_) {
    Flush();
    pending_begin_ = begin;
  }
  pending_end_ = end;
}

void ModuleWriter::Flush() {
  out_ += source_.substr(pending_begin_, pending_end_ - pending_begin_);
  pending_begin_ = pending_end_;
}

void ModuleWriter::StartFresh(const SourceSpan& span, int depth) {
  if (!span.empty()) {
    AddSource(span.leading, span.begin);
    Flush();
    pending_begin_ = pending_end_ = span.end;
    return;
  }
  Flush();
  // Behind a comment on the same line the text would be lost; a new line is right everywhere.
  out_ += '\n';
  out_.append(static_cast<size_t>(depth), '\t');
}

void ModuleWriter::AddBody(const std::vector<Statement>& statements, const SourceSpan& open, const SourceSpan& close,
                           int depth) {
  if (open.empty()) {
    StartFresh(open, depth);
    out_ += '{';
  } else {
    AddSource(open.leading, open.end);
  }
  for (const Statement& statement : statements) AddStatement(statement, depth + 1);
  if (close.empty()) {
    StartFresh(close, depth);
    out_ += '}';
  } else {
    AddSource(close.leading, close.end);
  }
}

void ModuleWriter::AddStatement(const Statement& statement, int depth) {
  if (const auto* block = std::get_if<Block>(&statement.node)) {
    AddBody(block->statements, block->open, block->close, depth);
    return;
  }
  if (!statement.edited && !statement.span.empty()) {
    AddSource(statement.span.leading, statement.span.end);
    return;
  }
  if (std::holds_alternative<Opaque>(statement.node)) {  // has no text but its source
    if (!statement.span.empty()) AddSource(statement.span.leading, statement.span.end);
    return;
  }
  StartFresh(statement.span, std::holds_alternative<Label>(statement.node) ? 0 : depth);
  AddStatementText(out_, statement);
}

void ModuleWriter::AddItem(const Item& item) {
  const bool is_fresh = (item.edited || item.span.empty()) && !std::holds_alternative<Opaque>(item.node);
  if (is_fresh) {
    StartFresh(item.span, 0);
    AddItemText(out_, item);
  } else if (!item.span.empty()) {
    AddSource(item.span.leading, item.span.end);
  }
  if (const auto* function = std::get_if<Function>(&item.node); function != nullptr && function->has_body)
    AddBody(function->body, function->open, function->close, 0);
}

std::string ModuleWriter::Finish(TextRange trailing) {
  AddSource(trailing.begin, trailing.end);
  Flush();
  return std::move(out_);
}

}  // namespace

std::string PrintModule(const Module& module) {
  ModuleWriter writer(module, module.source().size() + 4096);
  for (const Item& item : module.items()) writer.AddItem(item);
  return writer.Finish(module.trailing);
}

std::string PrintItem(const Module& module, const Item& item) {
  ModuleWriter writer(module, 4096);
  writer.AddItem(item);
  return writer.Finish({});
}

std::string PrintInstruction(const Instruction& instruction) {
  std::string out;
  AddInstruction(out, instruction);
  return out;
}

std::string PrintOperand(const Operand& operand) {
  std::string out;
  AddOperand(out, operand);
  return out;
}

std::string PrintStatement(const Statement& statement) {
  std::string out;
  AddStatementText(out, statement);
  return out;
}

std::string PrintVariable(const Variable& variable) {
  std::string out;
  AddVariable(out, variable);
  return out;
}

std::string PrintFunctionHead(const Function& function) {
  std::string out;
  AddFunctionHead(out, function);
  return out;
}

}  // namespace tally::ptx_transforms
