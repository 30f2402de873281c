"""Where notices go: one module for each kind of sink, and `registry` that makes them from the configuration."""
