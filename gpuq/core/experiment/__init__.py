"""One variable at a time: what differs from what, and where it comes from."""
