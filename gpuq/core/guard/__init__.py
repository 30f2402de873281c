"""What agents may not do by hand: the rules of `gpuq guard` over a parsed command line. Pure."""
