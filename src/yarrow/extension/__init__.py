"""Extensions: functions that observe and change runs, and that add tools, commands and providers."""
