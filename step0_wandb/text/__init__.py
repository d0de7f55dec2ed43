"""Text in and out: untrusted names made harmless, secrets removed, values read and documents written."""
