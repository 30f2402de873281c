"""What a person is told, in which words, by which sink, and what an answer means."""
