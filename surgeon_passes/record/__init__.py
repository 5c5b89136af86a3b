"""What a run decided, as plain data that outlives it: written, read again, compared, done again."""
