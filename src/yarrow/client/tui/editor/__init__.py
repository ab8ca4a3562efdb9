"""Where a person types: several lines, their history, completion, and long pastes in short."""
