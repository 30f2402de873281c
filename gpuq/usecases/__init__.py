"""What gpuq does for a person, one module per use. No click, no subprocess."""
