"""What a person or a script sees; knows the generated stub and nothing behind it."""
