"""The `kseg` program: one module per verb, loaded when it is called."""
