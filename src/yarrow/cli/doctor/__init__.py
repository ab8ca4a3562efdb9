"""What `yarrow doctor` looks at: one module for each kind of thing, and how what was found is shown."""
