"""Pure values and rules: values in, values out. Imports no os, subprocess, time or logging."""
