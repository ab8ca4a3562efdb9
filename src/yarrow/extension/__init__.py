"""What plugs in from outside: functions that watch and change runs, and tools, commands and providers."""
