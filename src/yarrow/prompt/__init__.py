"""System prompt, context files, skills and prompt templates."""
