"""The command line: parse, call one use case, print. The only place where the parts are put together."""
