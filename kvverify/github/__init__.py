"""What GitHub shows of a report: outputs, annotations and the step summary; pure functions from a document to text."""
