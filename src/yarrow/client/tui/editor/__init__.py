"""Prompt editor: several lines, input history, completion, and placeholders for long pastes."""
