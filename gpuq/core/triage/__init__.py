"""Why an attempt ended as it did: rules over evidence."""
