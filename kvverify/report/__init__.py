"""Reports: built as a run goes on, written atomically, checked again from raw answers, rendered to read."""
