"""An in-memory channel under the unchanged generated stub."""
