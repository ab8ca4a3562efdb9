"""Context compaction: selects the messages to drop and replaces them with a summary."""
