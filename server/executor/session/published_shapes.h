// What is known of the shapes that a session's window has come upon, for whoever asks (tallyctl window --shapes). Its
// channels know; they publish a copy now and then, when they hold the sequencer.
//
// Thread-safe.
#pragma once

#include <mutex>
#include <utility>
#include <vector>

#include "proto/control/window_figures.h"

namespace tally::server {

class PublishedShapes {
 public:
  // All of them, the most used first, in place of those before. `session_id` need not be set.
  void Publish(std::vector<control::WindowShapeFigures> shapes) {
    const std::lock_guard lock(mutex_);
    shapes_ = std::move(shapes);
  }
  std::vector<control::WindowShapeFigures> Last() const {
    const std::lock_guard lock(mutex_);
    return shapes_;
  }

 private:
  mutable std::mutex mutex_;
  std::vector<control::WindowShapeFigures> shapes_;
};

}  // namespace tally::server
